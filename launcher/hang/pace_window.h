// The pace of this node's ranks over the last seconds: a window of the phase times in their
// heartbeats. Pure: readings and times are passed in.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/pace.h"

namespace ddp::launch {

class PaceWindow {
 public:
  static constexpr std::chrono::seconds kLength{30};
  /// Minimum readings of a rank.
  static constexpr std::size_t kFewestReadings = 5;

  void clear() { ranks_.clear(); }
  /// The last heartbeat of `rank`. One with the same step as before does not count as a reading.
  void add(int rank, long long step, const std::vector<PhaseTime>& times, Clock::time_point now);
  /// Returns the node's pace; no phases until every rank that was read has been so for kLength, and
  /// none while it makes no progress. A single outlier in a window does not count.
  NodePace pace(Clock::time_point now) const;

 private:
  struct Reading {
    Clock::time_point at;
    long long step = 0;
    std::vector<PhaseTime> times;
  };
  struct Rank {
    Clock::time_point since;
    std::deque<Reading> readings;
  };

  static std::vector<Reading> recent(const Rank& rank, Clock::time_point now);

  std::map<int, Rank> ranks_;
};

/// Returns the 95th percentile, or the second largest of few values; `values` must not be empty.
double percentile_95(std::vector<double> values);

}  // namespace ddp::launch
