// How long one optimizer step takes, by a short formula. No LibTorch in it.
//
//   m (c + t) + b + e + u
//
// m  micro-batches of a copy of the model
// c  computation of one on the slowest stage: FLOPs / (attained FLOP/s x tensor)
// t  sums of the ranks that share its layers
// b  one micro-batch in the other stages, / pipeline_chunks
// e  what copies exchange, less the passes that hide it; on CPUs nothing is hidden
// u  the update: bytes read and written / bytes/s of the memory, or of the bus with offload
//
// Left out: buckets, messages between stages, what embedding and output layer exchange.
#pragma once

#include <string>
#include <vector>

#include "trainer/app/plan/plan_cluster.h"
#include "trainer/task/task_cost.h"

namespace ddp::train {

/// A training and the ranks that it is planned for.
struct PlannedTraining {
  const Config& config;
  const TaskCost& task;
  Cluster cluster;
};

/// Seconds of one optimizer step of the slowest rank.
struct StepTime {
  double compute_s = 0.0;
  double bubble_s = 0.0;   ///< Waiting for other stages.
  double exposed_s = 0.0;  ///< Communication that no computation hides.
  double update_s = 0.0;
  double sent_bytes = 0.0;  ///< By each rank.

  double total_s() const { return compute_s + bubble_s + exposed_s + update_s; }
  /// "computation takes 97% of a step": the longest of them.
  std::string limit() const;
};

/// The time of `config`, which is training.config divided among its ranks; `items`: the memory of a
/// rank, whose gradients and optimizer state it exchanges and updates.
StepTime step_time(const Config& config, const PlannedTraining& training,
                   const std::vector<MemoryItem>& items);

}  // namespace ddp::train
