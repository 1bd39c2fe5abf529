// Finds the rank that the others wait for, from what the nodes tell about their ranks. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/pace.h"

namespace ddp::launch {

/// A rank is a straggler if the 95th percentile of its time in a phase is this many times that of
/// the others, ...
inline constexpr double kStragglerFactor = 1.5;
/// ... and it keeps them waiting for this part of a step on average: less is not worth a line.
inline constexpr double kStragglerCost = 0.05;

/// Returns the rank and phase that cost most; nullopt: none. "The others": the median
/// over all other ranks, of which each node tells its own median.
std::optional<Straggler> find_straggler(const std::vector<NodePace>& nodes);

/// Confirms what find_straggler() finds: it must be the same for kPersistence, as a rank may
/// be held up for a moment.
class StragglerWatch {
 public:
  static constexpr std::chrono::seconds kPersistence{20};

  void look(const std::vector<NodePace>& nodes, Clock::time_point now);
  const std::optional<Straggler>& current() const { return confirmed_; }

 private:
  std::optional<Straggler> seen_;
  Clock::time_point seen_since_{};
  std::optional<Straggler> confirmed_;
};

/// "rank 3 (node 1, gpu2) is slow: the others wait for it; 95th percentile of its time in forward
/// over 30 s: 0.31 s, of the others: 0.12 s"
std::string straggler_text(const Straggler& straggler);

}  // namespace ddp::launch
