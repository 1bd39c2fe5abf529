// Finds the rank that the others wait for, from the nodes' reports on their ranks. Pure.
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
/// ... and it keeps them waiting for this share of a step on average: less is not worth a message.
inline constexpr double kStragglerCost = 0.05;

/// Returns the rank and phase that cost the most; nullopt if there is none. "The others": the
/// median over all other ranks, of which each node reports its own median.
std::optional<Straggler> find_straggler(const std::vector<NodePace>& nodes);

/// Confirms a result of find_straggler() once it has persisted for kPersistence, as a rank may be
/// delayed only briefly.
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
