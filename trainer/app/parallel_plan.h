// The ways to divide a training among ranks: what each needs and how long its steps take, by
// arithmetic alone. Opens no file, starts nothing; the same input gives the same plans. No LibTorch
// in it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/communication_cost.h"
#include "trainer/model/memory_model.h"

namespace ddp::train {

/// What is to be trained. The functions take configurations that differ from `config` in strategy,
/// micro-batches and `savers`.
struct PlannedTraining {
  Config config;
  MemoryModel memory;
  std::function<double(const Config&)> flops_per_sample;  ///< With what is computed again.
  std::vector<MemorySaver> savers;
  int64_t largest_layer = 0;  ///< Parameters; 0: not known.
  int64_t matrices = 0;       ///< Weight matrices, which ddp's buckets hold whole; 0: not known.
  int64_t units = 0;          ///< Blocks, which zero3 collects one by one; 0: not known.
  int64_t root = 0;           ///< Parameters outside of them.
};

/// Ranks that are all alike.
struct Cluster {
  Network network;
  bool cuda = true;
  int64_t memory_bytes = 0;  ///< Of each rank.
  double flops_per_s = 0.0;  ///< That each rank attains.
  double memory_bytes_per_s =
      0.0;  ///< That its memory delivers: the optimizer's update waits for it.
};

/// Seconds of one optimizer step.
struct StepTime {
  double compute_s = 0.0;
  double exposed_s = 0.0;  ///< Communication that no computation hides.
  double update_s = 0.0;

  double total_s() const { return compute_s + exposed_s + update_s; }
  /// "computation", "communication" or "update": the longest of them.
  std::string_view limited_by() const;
};

/// Ranks = tensor x pipeline x data.
struct ParallelPlan {
  Strategy strategy = Strategy::kDdp;
  int64_t tensor = 1;
  int64_t pipeline = 1;
  int64_t data = 1;
  std::vector<std::string> changes;  ///< To the configuration, besides the strategy: "key=value".
  std::vector<MemoryItem> items;     ///< With the program itself.
  int64_t memory_bytes = 0;          ///< Of the rank that needs most.
  int64_t batch_size = 0;            ///< Samples of a micro-batch.
  int64_t largest_batch = 0;         ///< Samples of the largest micro-batch that fits; 0: none.
  double sent_bytes = 0.0;           ///< By each rank in a step.
  StepTime time;
  bool fits = false;
  std::string reason;  ///< What limits its speed; of one that does not fit, why and what would.

  std::string_view strategy_name() const;
};

/// Every plan with the configuration as it is, the simplest first.
std::vector<ParallelPlan> parallel_plans(const PlannedTraining& training, const Cluster& cluster);

/// The fastest of `plans` that fits; a simpler one wins unless the other is clearly faster. If none
/// fits: likewise of those with a smaller micro-batch (and as many more of them) or, where that is
/// not enough, with memory savers; about as fast, the larger micro-batch wins. Nullopt if none of
/// these fits either.
std::optional<ParallelPlan> chosen_plan(const std::vector<ParallelPlan>& plans,
                                        const PlannedTraining& training, const Cluster& cluster);

/// A sentence for each way out if chosen_plan() finds none: more ranks, or what this version lacks.
std::vector<std::string> ways_out(const PlannedTraining& training, const Cluster& cluster);

}  // namespace ddp::train
