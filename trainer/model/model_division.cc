#include "trainer/model/model_division.h"

#include <fmt/format.h>

#include <string>

#include "trainer/config/add_tokens.h"
#include "trainer/config/config.h"
#include "trainer/model/lora.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

void check_task(const Config& config) {
  const DistributedConfig& how = config.distributed;
  if (config.task != TaskKind::kPreference || ranks_of_copy(how) == 1) return;
  throw UserError(fmt::format(
      "distributed_config.{} divides a causal language model that learns texts, not preferences; "
      "use strategy=zero3, which divides any model",
      how.pipeline > 1 ? "pipeline" : "tensor"));
}

void check_layers(const Config& config, const WeightsLayout& layout) {
  const DistributedConfig& how = config.distributed;
  if (how.pipeline == 1) return;
  const bool trains_tables =
      !add_tokens(config).empty() || std::ranges::any_of(config.lora.targets, is_of_tokens);
  if (config.lora.enabled() && trains_tables) {
    throw UserError(fmt::format(
        "distributed_config.pipeline={}: stages train adapters of blocks, not of the token "
        "embedding and the output layer; remove them from lora.targets, and "
        "data_config.add_tokens, or use strategy=zero3",
        how.pipeline));
  }
  const int64_t layers = stage_costs(layout, config.data.block_size).layers;
  const int64_t stages = how.pipeline * how.pipeline_chunks;
  if (stages <= layers) return;
  throw UserError(fmt::format(
      "distributed_config.pipeline={}: {} stages need a layer each, and the model has {} layer{}; "
      "use pipeline={} or less",
      how.pipeline, stages, layers, layers == 1 ? "" : "s", layers / how.pipeline_chunks));
}

void check_tensor(const Config& config, const CausalArchitecture& architecture,
                  const WeightsLayout& layout, int64_t vocab_size) {
  const int64_t ranks = config.distributed.tensor;
  if (ranks == 1) return;
  const std::string key = fmt::format("distributed_config.tensor={}", ranks);
  if (!architecture.shares_layers()) {
    throw UserError(
        fmt::format("{}: divides model=gpt and llama, and this is model={}; use strategy=zero3, "
                    "which divides any model",
                    key, config.model));
  }
  if (config.adapted()) {
    throw UserError(fmt::format("{}: does not divide {} or tensor", key,
                                config.lora.enabled()
                                    ? "adapters; remove lora.rank"
                                    : "virtual tokens; remove prompt_tuning.tokens"));
  }
  if (vocab_size < ranks)
    throw UserError(
        fmt::format("{}: the vocabulary has {} tokens only; use fewer ranks", key, vocab_size));
  for (const WeightPlace& place : layout) {
    const bool divided = place.split == Split::kColumns || place.split == Split::kRows;
    if (!divided || place.units % ranks == 0) continue;
    throw UserError(
        fmt::format("{}: {} has {} heads, which {} ranks cannot share evenly; use a "
                    "divisor of {}",
                    key, architecture.name(), place.units, ranks, place.units));
  }
  if (!config.distributed.sequence_parallel || config.data.block_size % ranks == 0) return;
  throw UserError(fmt::format(
      "distributed_config.sequence_parallel: {} ranks cannot share the {} rows of a sequence "
      "evenly; make data_config.block_size a multiple of {}, or remove sequence_parallel",
      ranks, config.data.block_size, ranks));
}

void check_experts(const Config& config, const CausalArchitecture& architecture,
                   const WeightsLayout& layout) {
  const int64_t ranks = config.distributed.expert, experts = expert_count(layout);
  if (ranks == 1) return;
  if (experts == 0) {
    throw UserError(
        fmt::format("distributed_config.expert={}: ranks share the experts of a mixture of "
                    "experts, and this {} has none; remove expert",
                    ranks, architecture.name()));
  }
  if (experts % ranks == 0) return;
  throw UserError(
      fmt::format("distributed_config.expert={}: {} has {} experts in a layer, which {} ranks "
                  "cannot share evenly; use a divisor of {}",
                  ranks, architecture.name(), experts, ranks, experts));
}

}  // namespace

void check_division(const Config& config, const CausalArchitecture& architecture,
                    int64_t vocab_size) {
  const auto layout = architecture.layout(config, vocab_size);
  check_task(config);
  check_layers(config, layout);
  check_tensor(config, architecture, layout, vocab_size);
  check_experts(config, architecture, layout);
}

ModelPart part_of_stage(const Config& config, const WeightsLayout& layout, int64_t stage) {
  const StageCosts costs = stage_costs(layout, config.data.block_size);
  const int64_t stages = config.distributed.pipeline * config.distributed.pipeline_chunks;
  return part_of_rank(cut_into_stages(costs, static_cast<int>(std::min(stages, costs.layers))),
                      static_cast<int>(stage), static_cast<int>(config.distributed.pipeline));
}

StageLoad stage_load(const Config& config, const WeightsLayout& layout, const ComputePlace& place) {
  const DistributedConfig& how = config.distributed;
  StageLoad load;
  load.layers = load.kept_layers =
      static_cast<double>(stage_costs(layout, config.data.block_size).layers);
  if (how.pipeline == 1) return load;
  const ModelPart part = part_of_stage(config, layout, place.stage);
  load.pipelined = true;
  load.layers = 0.0;
  for (const LayerRange& stage : part.stages)
    load.layers += static_cast<double>(stage.end - stage.begin);
  const int64_t micro_batches =
      micro_batches_of_rank(config.trainer, copies_of_model(how, place.world_size));
  const auto held = static_cast<double>(micro_batches_in_flight(how, place.stage, micro_batches));
  const auto chunks = static_cast<double>(how.pipeline_chunks);
  load.kept_layers = held * load.layers / chunks;
  load.in_flight = std::min(static_cast<double>(micro_batches), held);
  load.first = part.has_first();
  load.last = part.has_last();
  load.finished = how.pipeline_schedule == PipelineSchedule::kGpipe ? load.in_flight : 1.0;
  return load;
}

int64_t micro_batches_in_flight(const DistributedConfig& config, int64_t rank,
                                int64_t micro_batches) {
  const int64_t later = config.pipeline - rank;  // ranks from this one to the last
  switch (config.pipeline_schedule) {
    case PipelineSchedule::kGpipe:
      return micro_batches;
    case PipelineSchedule::kInterleaved:
      return std::min(micro_batches * config.pipeline_chunks,
                      2 * (later - 1) + (config.pipeline_chunks - 1) * config.pipeline + 1);
    case PipelineSchedule::k1f1b:
      return std::min(micro_batches, later);
  }
  return micro_batches;
}

bool shares_table(const WeightsLayout& layout) {
  return std::none_of(layout.begin(), layout.end(), [](const WeightPlace& place) {
    return place.block == WeightPlace::kAfterBlocks && place.split == Split::kVocabulary;
  });
}

}  // namespace ddp::train
