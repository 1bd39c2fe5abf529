// The ways to divide a training among ranks: what each needs and how long its steps take, by
// arithmetic alone. Opens no file, starts nothing; the same input gives the same plans. No LibTorch
// in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/app/plan/plan_cluster.h"
#include "trainer/config/config.h"
#include "trainer/model/causal_architecture.h"
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

/// Ranks = tensor x pipeline x data.
struct ParallelPlan {
  Config config;  ///< The training's with the same global batch, divided like that.
  int64_t data = 1;
  std::vector<MemoryItem> items;  ///< The largest rank's, in the limiting memory.
  int64_t memory_bytes = 0;       ///< Their sum.
  int64_t largest_batch = 0;      ///< Samples of the largest micro-batch that fits; 0: none.
  StepTime time;
  bool accepted = true;  ///< By the trainer; of others memory and time are not computed.
  bool fits = false;
  std::string reason;  ///< What limits its speed; if it does not fit: why, and what would.

  /// "zero1 tensor=2+sp pipeline=2 interleavedx2"
  std::string name() const;
};

struct PlanAnswer {
  std::vector<ParallelPlan> plans;  ///< With the batch and model as configured, the simplest first;
                                    ///< those of a division one after the other.
  /// The fastest of them that fits; if none does, the fastest with a smaller micro-batch (and as
  /// many more of them) or, where that is not enough, with memory savers.
  std::optional<ParallelPlan> choice;
  std::vector<std::string> overrides;  ///< "key=value" of the choice, its strategy first.
  std::string way_out;  ///< Without a choice: on how many ranks it would fit, and how.
};

/// Compares every division of the ranks. Throws UserError for a model that does not declare the
/// memory it needs.
PlanAnswer plan_training(const PlannedTraining& training);
/// The plans that differ from the configuration in nothing but the strategy.
std::vector<ParallelPlan> strategy_plans(const PlannedTraining& training);

/// The fastest of `plans` that fits, if any; a simpler one wins unless the other is clearly faster,
/// or about as fast with a larger micro-batch. ZeRO-3 is for what fits no other way.
std::optional<ParallelPlan> fastest_of(const std::vector<ParallelPlan>& plans);

/// The time of `config`, which is training.config divided among its ranks; `items`: the memory of a
/// rank, whose gradients and optimizer state it exchanges and updates.
StepTime step_time(const Config& config, const PlannedTraining& training,
                   const std::vector<MemoryItem>& items);

/// What `trainer plan` prints: a table below `facts`, then the choice as YAML to paste, or the way
/// out.
std::string plan_text(const PlanAnswer& answer, const std::vector<std::string>& facts);
/// {"plans": [...], "choice": {...}}; choice is null where nothing fits.
std::string plan_json(const PlanAnswer& answer);

/// The items of the rank that needs most: in a pipeline each stage has its own.
std::vector<MemoryItem> items_of_largest_rank(const Config& config, const TaskCost& task,
                                              ComputePlace place);

/// What needs less memory and computes the same numbers.
std::vector<MemorySaver> savers_of(const Config& config);

}  // namespace ddp::train
