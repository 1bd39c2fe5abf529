// The ways to divide a training among ranks: what each needs and how long its steps take, by
// arithmetic alone. Opens no file, starts nothing; the same input gives the same plans. No LibTorch
// in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/app/plan/step_time.h"
#include "trainer/config/config.h"
#include "trainer/model/causal_architecture.h"

namespace ddp::train {

/// Ranks = tensor x pipeline x data.
struct ParallelPlan {
  Config config;  ///< The training's with the same global batch, divided like that.
  int64_t data = 1;
  std::vector<MemoryItem> items;  ///< The largest rank's, including the program itself.
  int64_t memory_bytes = 0;       ///< Sum of the items.
  int64_t largest_batch = 0;      ///< Samples of the largest micro-batch that fits; 0: none.
  StepTime time;
  bool accepted = true;  ///< By the trainer; of others memory and time are not computed.
  bool fits = false;
  std::string reason;  ///< What limits its speed; if it does not fit: why, and what would.

  /// "zero1 tensor=2+sp pipeline=2 interleavedx2"
  std::string name() const;
};

/// Two times whose ratio is closer to 1 than this are within the formula's error.
inline constexpr double kClearlyFaster = 0.95;

/// Every plan with the batch and the model as they are configured, the simplest first. Throws
/// UserError for a model that does not declare the memory it needs.
std::vector<ParallelPlan> parallel_plans(const PlannedTraining& training);
/// The plans that differ from the configuration in nothing but the strategy.
std::vector<ParallelPlan> strategy_plans(const PlannedTraining& training);

/// The fastest of `plans` that fits, if any; a simpler one wins unless the other is clearly faster,
/// or about as fast with a larger micro-batch. ZeRO-3 is for what fits no other way.
std::optional<ParallelPlan> fastest_of(const std::vector<ParallelPlan>& plans);
/// If none of `plans` fits: the fastest with a smaller micro-batch (and as many more of them) or,
/// where that is not enough, with memory savers. Nullopt if none of these fits either.
std::optional<ParallelPlan> chosen_plan(const std::vector<ParallelPlan>& plans,
                                        const PlannedTraining& training);

/// A line that states on how many ranks it would fit, and how, if chosen_plan() finds none.
std::string way_out(PlannedTraining training);

/// The items of the rank that needs most: in a pipeline each stage has its own.
std::vector<MemoryItem> items_of_largest_rank(const Config& config, const TaskCost& task,
                                              ComputePlace place);

/// "key=value" of the strategy, which always is the first, and of what else differs in `config`.
std::vector<std::string> overrides_of(const Config& config, const Config& given);

/// What needs less memory and computes the same numbers.
std::vector<MemorySaver> savers_of(const Config& config);

}  // namespace ddp::train
