// How long one optimizer step of a configuration takes, by arithmetic alone. No LibTorch in it.
#pragma once

#include <string_view>

#include "trainer/app/plan/plan_input.h"

namespace ddp::train {

/// Seconds of one optimizer step.
struct StepTime {
  double compute_s = 0.0;  ///< The slowest rank's.
  double exposed_s = 0.0;  ///< Communication that no computation hides.
  double update_s = 0.0;
  double bubble_s = 0.0;    ///< For which that rank waits for other stages.
  double sent_bytes = 0.0;  ///< By each rank.
  double idle_share = 0.0;  ///< Share of a pipeline's passes in which its ranks wait.

  double total_s() const { return compute_s + bubble_s + exposed_s + update_s; }
  /// "computation", "communication", "the pipeline's bubble" or "update": the longest of them.
  std::string_view limited_by() const;
  double longest_s() const;
};

/// `config` must be valid for cluster.network.ranks.
StepTime step_time(const Config& config, const PlannedTraining& training, const Cluster& cluster);

}  // namespace ddp::train
