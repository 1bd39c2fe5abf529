// The pace of ranks according to their heartbeats, and the rank that the others wait for: plain
// structs.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ddp::launch {

/// Time that a rank spent in a phase of its last step, without waiting for other ranks.
struct PhaseTime {
  std::string phase{};
  double seconds = 0;
};

/// A rank's time in a phase over the window, seconds.
struct PaceTimes {
  double p95 = 0;  // 95th percentile
  double mean = 0;
};

/// A phase on one node.
struct PhasePace {
  std::string phase{};
  int slowest_rank = 0;  // by p95
  PaceTimes slowest{};
  PaceTimes others{};  // medians over the node's other ranks
  int other_ranks = 0;
};

/// What a node reports about its ranks; no phases: not enough is known.
struct NodePace {
  int node = 0;  // its rank
  std::string host{};
  double step_seconds = 0;  // mean time from step to step
  std::vector<PhasePace> phases{};
};

inline constexpr std::size_t kMostPhases = 4;

/// The rank that the others wait for.
struct Straggler {
  int rank = 0;
  int node = 0;
  std::string host{};
  std::string phase{};
  double seconds = 0;  // 95th percentile of its time in this phase
  double others = 0;   // the same of the others, median over ranks
  bool same_as(const Straggler& other) const { return rank == other.rank && phase == other.phase; }
};

}  // namespace ddp::launch
