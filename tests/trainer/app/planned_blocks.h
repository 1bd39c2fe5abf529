// A GPT as the planner sees it, and GPUs to plan for.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "trainer/app/plan/parallel_plan.h"
#include "trainer/model/cost/tensor_cost.h"
#include "trainer/model/model_division.h"

namespace ddp::train::test {

inline constexpr int64_t kMillion = 1'000'000;
inline constexpr int64_t kGB = 1'000'000'000;

inline Cluster gpus(int64_t ranks, int64_t gigabytes, int64_t nodes = 1) {
  constexpr double kAttained = 400e12;
  constexpr double kMemory = 3000e9;
  return {{ranks, nodes, {29e-6, 370e9}, {29e-6, 50e9}}, true, gigabytes * kGB, kAttained, kMemory};
}

inline std::optional<ParallelPlan> choice(const PlannedTraining& training, const Cluster& cluster) {
  return chosen_plan(parallel_plans(training, cluster), training, cluster);
}

/// A GPT's layout and sizes, in blocks of 12 width^2 parameters; activations divide like layers.
struct Blocks {
  int64_t layers = 8;
  int64_t width = 1024;
  int64_t vocabulary = 8192;
  int64_t tokens = 1024;

  WeightsLayout layout() const {
    WeightsLayout places = {{"table",
                             {vocabulary, width},
                             WeightPlace::kBeforeBlocks,
                             Split::kVocabulary,
                             1,
                             vocabulary}};
    for (int64_t i = 0; i < layers; ++i)
      places.push_back({"h." + std::to_string(i), {12 * width, width}, i, Split::kColumns, 1, 8});
    places.push_back({"head",
                      {vocabulary, width},
                      WeightPlace::kAfterBlocks,
                      Split::kVocabulary,
                      1,
                      vocabulary});
    return places;
  }
};

inline PlannedTraining training_of_blocks(const Blocks& blocks, int64_t batch_size,
                                          int64_t micro_batches = 1) {
  PlannedTraining training;
  training.config.trainer.batch_size = batch_size;
  training.config.trainer.grad_accumulation_steps = micro_batches;
  training.config.data.block_size = blocks.tokens;
  training.layout = blocks.layout();
  training.memory = [blocks](const Config& config, const ComputePlace& place) {
    std::vector<ParameterShape> shapes;
    for (const WeightPlace& weight : blocks.layout())
      shapes.push_back({weight.name, weight.shape, ParameterRole::kOther});
    const StageLoad load = stage_load(config, blocks.layout(), place);
    const double row =
        static_cast<double>(config.trainer.batch_size * blocks.tokens * blocks.width);
    const double bytes =
        load.kept_layers * row * 40.0 / static_cast<double>(config.distributed.tensor);
    return rank_items(config, shapes, place, blocks.layout(),
                      {{"activations", static_cast<int64_t>(bytes)}});
  };
  training.flops_per_sample = [blocks](const Config& config) {
    return 6.0 * static_cast<double>(elements_of(blocks.layout()) * config.data.block_size);
  };
  training.largest_layer =
      std::max(12 * blocks.width * blocks.width, blocks.vocabulary * blocks.width);
  training.units = blocks.layers;
  training.root = 2 * blocks.vocabulary * blocks.width;
  return training;
}

inline const ParallelPlan* found(const std::vector<ParallelPlan>& plans, const Division& division) {
  for (const ParallelPlan& plan : plans)
    if (plan.division == division) return &plan;
  return nullptr;
}

}  // namespace ddp::train::test
