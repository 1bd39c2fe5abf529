#include "trainer/app/plan/strategy_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/app/plan/machine_memory.h"
#include "trainer/app/plan/plan_cluster.h"
#include "trainer/app/plan/planned_training.h"
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
  return plan_cluster(args, config).cluster;
}

StrategyChoice planned_choice(const Config& config, const Task& task, const Cluster& cluster) {
  try {
    const PlannedTraining training = planned_training(config, task);
    return choice_among(strategy_plans(training, cluster), training, cluster);
  } catch (const UserError& error) {
    return {Strategy::kDdp, error.what()};
  }
}

/// Whether strategies have the same copies of a model to divide.
bool same_division(const DistributedConfig& one, const DistributedConfig& two) {
  return one.tensor == two.tensor && one.pipeline == two.pipeline &&
         one.sequence_parallel == two.sequence_parallel;
}

/// "zero1": one that a run may have used.
std::optional<Strategy> strategy_named(const std::string& name) {
  const Names names = names_of(Strategy{});
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto strategy = static_cast<Strategy>(i);
    if (names[i] == name && strategy != Strategy::kAuto) return strategy;
  }
  return std::nullopt;
}

}  // namespace

StrategyChoice choice_among(const std::vector<ParallelPlan>& plans, const PlannedTraining& training,
                            const Cluster& cluster) {
  const auto fitting =
      std::any_of(plans.begin(), plans.end(), [](const ParallelPlan& plan) { return plan.fits; });
  if (fitting) {
    const auto best = chosen_plan(plans, training, cluster);
    return {
        best->division.strategy,
        fmt::format("the fastest that fits, with {} of {} on each rank; {}",
                    in_bytes(best->memory_bytes), in_bytes(cluster.memory_bytes), best->reason)};
  }
  // At least ddp is accepted. A plan that is not has no figures.
  const auto leanest = std::min_element(plans.begin(), plans.end(),
                                        [](const ParallelPlan& one, const ParallelPlan& two) {
                                          if (one.accepted != two.accepted) return one.accepted;
                                          return one.memory_bytes < two.memory_bytes;
                                        });
  return {leanest->division.strategy,
          fmt::format("none is expected to fit in {} on each rank, and it needs least, {}; "
                      "trainer plan shows what would fit",
                      in_bytes(cluster.memory_bytes), in_bytes(leanest->memory_bytes))};
}

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
  StrategyChoice choice = planned_choice(config, task, cluster_of(config, plan, env, least));
  choice.strategy = strategy_named(group.broadcast_text(std::string(name_of(choice.strategy))))
                        .value_or(choice.strategy);
  if (has_chosen) {
    choice.why += fmt::format(" (the run was saved under {} by {}, and has {} now)",
                              name_of(before), counted(meta->world_size, "rank"), group.size());
  }
  return choice;
}

}  // namespace ddp::train
