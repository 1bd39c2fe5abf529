// Models as the planner sees them, and GPUs to plan for.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trainer/app/plan/parallel_plan.h"
#include "trainer/config/config.h"
#include "trainer/model/cost/tensor_cost.h"
#include "trainer/model/model_division.h"
#include "trainer/runtime/error.h"

namespace ddp::train::test {

inline constexpr int64_t kMillion = 1'000'000;
inline constexpr int64_t kGB = 1'000'000'000;

inline Cluster gpus(int64_t ranks, int64_t gigabytes, int64_t nodes = 1) {
  constexpr double kAttained = 400e12;
  constexpr double kMemory = 3000e9;
  return {ranks,   nodes, {29e-6, 370e9}, {29e-6, 50e9}, true, gigabytes * kGB, kAttained,
          kMemory, {}};
}

/// A model of equal matrices, 6 FLOPs for each parameter and token. With a width they are the
/// blocks of a GPT between two tables, which ranks can divide.
struct Model : TaskCost {
  Model(int64_t count, int64_t size, int64_t bytes_of_sample)
      : matrices(count), matrix(size), activations(bytes_of_sample) {}

  int64_t matrices;
  int64_t matrix;
  int64_t activations;  ///< Bytes of a sample; a tenth with checkpointing.
  int64_t width = 0;
  int64_t vocabulary = 8192;
  int64_t tokens = 1024;  ///< Per sample.
  std::function<bool(const DistributedConfig&)> refuses = [](const auto&) { return false; };

  int64_t units_per_sample() const override { return tokens; }
  std::string_view unit() const override { return "tokens"; }
  double flops_per_unit() const override {
    return 6.0 * static_cast<double>(width > 0 ? elements_of(layout()) : matrices * matrix);
  }
  void check_division(const Config& config) const override {
    if (refuses(config.distributed)) throw UserError("not so");
  }
  WeightsLayout layout() const override {
    if (width == 0) return {};
    const WeightPlace table{
        "table", {vocabulary, width}, WeightPlace::kBeforeBlocks, Split::kVocabulary,
        1,       vocabulary};
    WeightsLayout places = {table};
    for (int64_t i = 0; i < matrices; ++i)
      places.push_back(
          {"h." + std::to_string(i), {matrix / width, width}, i, Split::kColumns, 1, 8});
    places.push_back(table);
    places.back().name = "head";
    places.back().block = WeightPlace::kAfterBlocks;
    return places;
  }
  std::vector<MemoryItem> memory_items(const Config& config,
                                       const ComputePlace& place) const override {
    std::vector<ParameterShape> shapes;
    const auto all = layout();
    for (const WeightPlace& weight : all)
      shapes.push_back({weight.name, weight.shape, ParameterRole::kOther});
    for (int64_t i = 0; all.empty() && i < matrices; ++i)
      shapes.push_back({"h." + std::to_string(i), {matrix}, ParameterRole::kOther});
    const double share = all.empty()
                             ? 1.0
                             : stage_load(config, all, place).kept_layers /
                                   static_cast<double>(matrices * config.distributed.tensor);
    const int64_t bytes = config.trainer.batch_size * activations;
    const MemoryItem kept{"activations", static_cast<int64_t>(share * static_cast<double>(bytes)) /
                                             (config.gpt.activation_checkpointing ? 10 : 1)};
    return rank_items(config, shapes, place, all, {kept});
  }
};

/// A GPT of blocks of 12 width^2 parameters.
inline Model blocks(int64_t layers, int64_t width, int64_t tokens = 1024,
                    int64_t vocabulary = 8192) {
  Model model(layers, 12 * width * width, 40 * layers * tokens * width);
  model.width = width;
  model.tokens = tokens;
  model.vocabulary = vocabulary;
  return model;
}

inline Config batches(int64_t batch_size, int64_t micro_batches = 1) {
  Config config;
  config.data.block_size = 1024;
  config.trainer.batch_size = batch_size;
  config.trainer.grad_accumulation_steps = micro_batches;
  return config;
}

}  // namespace ddp::train::test
