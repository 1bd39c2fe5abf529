#include "trainer/app/plan/strategy_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trainer/app/plan/memory_estimate.h"
#include "trainer/app/plan/parallel_plan.h"
#include "trainer/config/config.h"
#include "trainer/config/keys/config_text.h"
#include "trainer/metrics/text.h"
#include "trainer/model/model_division.h"
#include "trainer/parallel/device/cuda_module.h"
#include "trainer/parallel/device/device_share.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

/// What this rank may use, with what it uses already.
double memory_of_rank(const Config& config, const DevicePlan& plan, const DistEnv& env) {
  if (const auto limit = memory_limit_bytes(config.distributed, plan.device))
    return static_cast<double>(*limit);
  if (plan.device.is_cuda())
    return static_cast<double>(loaded_cuda_module()->total_memory_bytes(plan.device.index()));
  return static_cast<double>(available_memory_bytes()) / env.local_world_size;
}

Cluster cluster_of(Config config, const DevicePlan& plan, const DistEnv& env, double memory) {
  constexpr double kGiga = 1e9;
  config.trainer.device = plan.device.is_cuda() ? DeviceChoice::kCuda : DeviceChoice::kCpu;
  PlanArgs args;
  args.gpus = env.world_size;
  args.nodes = std::max(1, env.world_size / env.local_world_size);
  if (args.gpus % args.nodes != 0) args.nodes = 1;
  args.memory_gb = memory / kGiga;
  return plan_cluster(args, config);
}

/// Whether strategies have the same copies of a model to divide.
bool same_division(const DistributedConfig& one, const DistributedConfig& two) {
  return one.tensor == two.tensor && one.pipeline == two.pipeline &&
         one.sequence_parallel == two.sequence_parallel;
}

/// The fastest strategy that fits; if none fits, the one that needs the least memory.
StrategyChoice planned_choice(const PlannedTraining& training) {
  const auto plans = strategy_plans(training);
  const auto fastest = fastest_of(plans);
  const ParallelPlan& plan =
      fastest ? *fastest : *std::ranges::min_element(plans, {}, [](const ParallelPlan& each) {
        return std::pair(!each.accepted, each.memory_bytes);
      });
  return {plan.config.distributed.strategy,
          fmt::format("{} {} of {} on each rank; {}",
                      fastest ? "the fastest that fits, with"
                              : "none is expected to fit, and it needs least,",
                      in_bytes(plan.memory_bytes), in_bytes(training.cluster.memory_bytes),
                      fastest ? plan.reason : "trainer plan shows what would fit")};
}

}  // namespace

StrategyChoice choose_strategy(const Config& config, const Task& task, const DevicePlan& plan,
                               const DistEnv& env, const std::optional<SnapshotMeta>& meta,
                               ProcessGroup& group) {
  if (group.size() == 1) return {Strategy::kDdp, "one rank has nothing to divide"};
  if (copies_of_model(config.distributed, group.size()) == 1)
    return {Strategy::kDdp, "there is one copy of the model, whose ranks have nothing to share"};
  const auto memory = group.gather_doubles(memory_of_rank(config, plan, env));
  DistributedConfig saved = config.distributed;  // with auto
  if (meta) saved = config_from_json(meta->config_json).distributed;
  const Strategy before = saved.strategy;
  const bool has_chosen = before != Strategy::kAuto;
  if (has_chosen && meta->world_size == group.size() && same_division(saved, config.distributed))
    return {before, "as the run has used so far"};
  const double least = *std::min_element(memory.begin(), memory.end());
  StrategyChoice choice;
  try {
    choice = planned_choice({config, task, cluster_of(config, plan, env, least)});
  } catch (const UserError& error) {
    choice = {Strategy::kDdp, error.what()};
  }
  choice.strategy =
      static_cast<Strategy>(group.gather_doubles(static_cast<double>(choice.strategy)).front());
  if (has_chosen) {
    choice.why += fmt::format(" (the run was saved under {} by {}, and has {} now)",
                              name_of(before), counted(meta->world_size, "rank"), group.size());
  }
  return choice;
}

}  // namespace ddp::train
