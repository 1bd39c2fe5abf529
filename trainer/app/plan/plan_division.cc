#include "trainer/app/plan/plan_division.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/model/model_division.h"
#include "trainer/parallel/strategy/pipeline_schedule.h"

namespace ddp::train {
namespace {

constexpr Strategy kStrategies[] = {Strategy::kDdp, Strategy::kZero1, Strategy::kZero2,
                                    Strategy::kZero3};

struct StageSchedule {
  PipelineSchedule schedule;
  int64_t chunks;
};
constexpr StageSchedule kSchedules[] = {{PipelineSchedule::k1f1b, 1},
                                        {PipelineSchedule::kInterleaved, 2},
                                        {PipelineSchedule::kGpipe, 1}};

void add_strategies(std::vector<Division>& all, Division division) {
  for (const Strategy strategy : kStrategies) {
    division.strategy = strategy;
    all.push_back(division);
  }
}

void add_stages(std::vector<Division>& all, Division division) {
  if (division.pipeline == 1) return add_strategies(all, division);
  for (const auto& [schedule, chunks] : kSchedules) {
    division.schedule = schedule;
    division.chunks = chunks;
    add_strategies(all, division);
  }
}

void add_divisions(std::vector<Division>& all, int64_t tensor, int64_t pipeline) {
  Division division{Strategy::kDdp, tensor, pipeline};
  add_stages(all, division);
  if (tensor == 1) return;
  division.sequence_parallel = true;
  add_stages(all, division);
}

/// Micro-batches of a step, of all copies together.
int64_t micro_batches_of_step(const Config& config, int64_t ranks) {
  const TrainerConfig& trainer = config.trainer;
  if (trainer.global_batch_size)
    return *trainer.global_batch_size / std::max<int64_t>(1, trainer.batch_size);
  return trainer.grad_accumulation_steps * copies_of_model(config.distributed, ranks);
}

std::string why_not_zero(const Config& config, int64_t ranks) {
  if (config.distributed.strategy == Strategy::kDdp) return "";
  if (ranks == 1) return "divides the state among ranks, and there is one";
  if (copies_of_model(config.distributed, ranks) == 1)
    return "divides the state among copies of the model, and there is one";
  if (config.trainer.ram_snapshots && config.trainer.snapshot_shards == AutoSwitch::kFalse)
    return "copies to memory only without trainer_config.snapshot_shards=false";
  if (config.distributed.gradient_compression != GradientCompression::kNone)
    return "works without distributed_config.gradient_compression only";
  return "";
}

std::string why_not_stages(const Config& config, const Network& network) {
  const DistributedConfig& how = config.distributed;
  if (how.tensor > network.ranks_of_node() || network.ranks_of_node() % how.tensor != 0)
    return fmt::format(
        "ranks that share layers wait for each other four times per layer: a node has {}",
        network.ranks_of_node());
  if (how.pipeline == 1) return "";
  const PipelineShape shape{
      static_cast<int>(how.pipeline), static_cast<int>(how.pipeline_chunks),
      micro_batches_of_rank(config.trainer, copies_of_model(how, network.ranks))};
  if (suits(how.pipeline_schedule, shape)) return "";
  return fmt::format("interleaved takes a multiple of {} micro-batches, and there are {}",
                     how.pipeline, shape.micro_batches);
}

}  // namespace

Division division_of(const DistributedConfig& config) {
  return {config.strategy,          config.tensor,
          config.pipeline,          config.sequence_parallel,
          config.pipeline_schedule, config.pipeline_chunks};
}

std::vector<Division> divisions(const PlannedTraining& training, int64_t ranks) {
  std::vector<Division> all;
  add_divisions(all, 1, 1);
  if (training.layout.empty()) return all;
  const int64_t layers = stage_costs(training.layout, training.config.data.block_size).layers;
  for (int64_t pipeline = 1; pipeline <= std::min(ranks, layers); ++pipeline) {
    if (ranks % pipeline != 0) continue;
    for (int64_t tensor = 1; tensor <= ranks / pipeline; ++tensor) {
      if (tensor * pipeline > 1 && ranks / pipeline % tensor == 0)
        add_divisions(all, tensor, pipeline);
    }
  }
  return all;
}

Config divided(Config config, const Division& division, int64_t ranks) {
  const int64_t micro_batches = micro_batches_of_step(config, ranks);
  DistributedConfig& how = config.distributed;
  how.strategy = division.strategy;
  how.tensor = division.tensor;
  how.pipeline = division.pipeline;
  how.sequence_parallel = division.sequence_parallel;
  how.pipeline_schedule = division.schedule;
  how.pipeline_chunks = division.chunks;
  if (!config.trainer.global_batch_size)
    config.trainer.grad_accumulation_steps = micro_batches / copies_of_model(how, ranks);
  return config;
}

std::string why_not(const Config& config, const PlannedTraining& training, const Network& network) {
  const int64_t before =
      micro_batches_of_step(training.config, network.ranks) * training.config.trainer.batch_size;
  const int64_t after = micro_batches_of_step(config, network.ranks) * config.trainer.batch_size;
  if (before != after)
    return fmt::format("{} copies of the model cannot share a global batch of {} samples equally",
                       copies_of_model(config.distributed, network.ranks), before);
  if (training.refusal) {
    if (auto why = training.refusal(config); !why.empty()) return why;
  }
  if (ranks_of_copy(config.distributed) > 1) {
    if (auto why = why_not_stages(config, network); !why.empty()) return why;
  }
  return why_not_zero(config, network.ranks);
}

}  // namespace ddp::train
