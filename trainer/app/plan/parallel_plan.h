// The ways to divide a training among ranks: what each needs and how long its steps take, by
// arithmetic alone. Opens no file, starts nothing; the same input gives the same plans. No LibTorch
// in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/app/plan/plan_division.h"
#include "trainer/app/plan/plan_input.h"
#include "trainer/app/plan/step_time.h"

namespace ddp::train {

/// Ranks = tensor x pipeline x data.
struct ParallelPlan {
  Division division;
  int64_t data = 1;
  /// To the configuration, besides the strategy: "key=value". First those of distributed_config.
  std::vector<std::string> changes;
  std::vector<MemoryItem> items;  ///< The largest rank's, including the program itself.
  int64_t memory_bytes = 0;       ///< Sum of the items.
  int64_t batch_size = 0;         ///< Samples of a micro-batch.
  int64_t largest_batch = 0;      ///< Samples of the largest micro-batch that fits; 0: none.
  StepTime time;
  bool accepted = true;  ///< By the trainer; of others memory and time are not computed.
  bool fits = false;
  std::string reason;  ///< What limits its speed; if it does not fit: why, and what would.

  std::string_view strategy_name() const;
  /// "zero1, tensor=2 with sequence_parallel, pipeline=2 interleaved x2"
  std::string name() const;
};

/// Two times whose ratio is closer to 1 than this are within the model's error.
inline constexpr double kClearlyFaster = 0.95;

/// Every plan with the batch and the model as they are configured, the simplest first.
std::vector<ParallelPlan> parallel_plans(const PlannedTraining& training, const Cluster& cluster);
/// The plans that differ from the configuration in nothing but the strategy.
std::vector<ParallelPlan> strategy_plans(const PlannedTraining& training, const Cluster& cluster);

/// The fastest of `plans` that fits; a simpler one wins unless the other is clearly faster. If none
/// fits: likewise of those with a smaller micro-batch (and as many more of them) or, where that is
/// not enough, with memory savers; about as fast, the larger micro-batch wins. Nullopt if none of
/// these fits either.
std::optional<ParallelPlan> chosen_plan(const std::vector<ParallelPlan>& plans,
                                        const PlannedTraining& training, const Cluster& cluster);

/// A sentence for each way out if chosen_plan() finds none.
std::vector<std::string> ways_out(const PlannedTraining& training, const Cluster& cluster);

}  // namespace ddp::train
