#include "trainer/app/plan/parallel_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "trainer/config/keys/config_checks.h"
#include "trainer/config/keys/key_table.h"
#include "trainer/hydra/yaml/node_text.h"
#include "trainer/metrics/text.h"
#include "trainer/model/model_division.h"
#include "trainer/parallel/strategy/pipeline_schedule.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

using Divisions = std::vector<DistributedConfig>;

constexpr std::array kStrategies = {Strategy::kDdp, Strategy::kZero1, Strategy::kZero2,
                                    Strategy::kZero3};

/// `how` with each strategy and schedule; the ranks of a single copy have nothing to share.
void add_each(Divisions& all, DistributedConfig how, int64_t ranks) {
  for (const auto& [schedule, chunks] : {std::pair(PipelineSchedule::k1f1b, 1),
                                         {PipelineSchedule::kInterleaved, 2},
                                         {PipelineSchedule::kGpipe, 1}}) {
    if (how.pipeline == 1 && schedule != PipelineSchedule::k1f1b) continue;
    how.pipeline_schedule = schedule;
    how.pipeline_chunks = chunks;
    for (const Strategy strategy : kStrategies) {
      how.strategy = strategy;
      if (ranks_of_copy(how) < ranks || strategy == Strategy::kDdp) all.push_back(how);
    }
  }
}

/// Every division of the ranks, the simplest first.
Divisions divisions(const PlannedTraining& training) {
  const int64_t ranks = training.cluster.ranks;
  const WeightsLayout layout = training.task.layout();
  const int64_t most = layout.empty() ? 1 : ranks;
  const int64_t layers = stage_costs(layout, training.config.data.block_size).layers;
  Divisions all;
  DistributedConfig how = training.config.distributed;
  for (how.pipeline = 1; how.pipeline <= std::clamp<int64_t>(layers, 1, most); ++how.pipeline) {
    for (how.tensor = 1; how.tensor <= most / how.pipeline; ++how.tensor) {
      if (ranks % ranks_of_copy(how) != 0) continue;
      for (const bool parts : {false, true}) {
        how.sequence_parallel = parts;
        if (how.tensor > 1 || !parts) add_each(all, how, ranks);
      }
    }
  }
  return all;
}

/// Samples of a step that all copies of the model share equally.
int64_t global_batch(const Config& config, int64_t ranks) {
  const TrainerConfig& trainer = config.trainer;
  return trainer.global_batch_size.value_or(trainer.batch_size * trainer.grad_accumulation_steps *
                                            copies_of_model(config.distributed, ranks));
}

/// The training, divided and in micro-batches of a `parts`-th, with the same global batch.
Config divided(const PlannedTraining& training, const DistributedConfig& how, int64_t parts = 1) {
  const int64_t ranks = training.cluster.ranks;
  Config config = training.config;
  config.distributed = how;
  config.trainer.batch_size /= parts;
  if (!config.trainer.global_batch_size)
    config.trainer.grad_accumulation_steps = global_batch(training.config, ranks) /
                                             config.trainer.batch_size /
                                             copies_of_model(how, ranks);
  return config;
}

/// Why the trainer cannot use `config` on these ranks, or should not; "" if it can.
std::string why_not(const Config& config, const PlannedTraining& training) {
  const DistributedConfig& how = config.distributed;
  const int64_t ranks = training.cluster.ranks;
  const int64_t on_node = training.cluster.ranks_of_node();
  const int64_t copies = copies_of_model(how, ranks);
  const int64_t samples = global_batch(training.config, ranks);
  if (global_batch(config, ranks) != samples || samples < copies * config.trainer.batch_size)
    return fmt::format("{} copies of the model cannot share a global batch of {} samples equally",
                       copies, samples);
  try {
    check_parallelism(config, Given({}, ""));
    training.task.check_division(config);
  } catch (const UserError& error) {
    return error.what();
  }
  if (copies % how.expert != 0)
    return fmt::format("{} ranks are not a multiple of distributed_config.expert={}", copies,
                       how.expert);
  if (on_node % how.tensor != 0)
    return fmt::format(
        "ranks that share layers wait for each other four times per layer: a node has {}", on_node);
  const PipelineShape shape{static_cast<int>(how.pipeline), static_cast<int>(how.pipeline_chunks),
                            micro_batches_of_rank(config.trainer, copies)};
  if (suits(how.pipeline_schedule, shape)) return "";
  return fmt::format("interleaved takes a multiple of {} micro-batches, and there are {}",
                     shape.ranks, shape.micro_batches);
}

/// With what a rank holds besides the training. Measured on CPUs; assumed on GPUs: CUDA's context,
/// NCCL's buffers, workspaces and the allocator's slack.
std::vector<MemoryItem> items_of(const Config& config, const PlannedTraining& training) {
  const Cluster& cluster = training.cluster;
  auto items = items_of_largest_rank(config, training.task, {cluster.cuda, cluster.ranks});
  items.push_back(cluster.cuda ? MemoryItem{"context", 1'000'000'000}
                               : MemoryItem{"program", 165'000'000, MemoryKind::kHost});
  return items;
}

// With global_batch_size the need is not monotone: then one of those that fit.
int64_t largest_batch(Config config, const PlannedTraining& training) {
  const Cluster& cluster = training.cluster;
  int64_t largest = 0;
  for (int64_t more = int64_t{1} << 19U; more > 0; more /= 2) {
    config.trainer.batch_size = largest + more;
    if (bytes_of_rank(items_of(config, training), cluster.cuda) <= cluster.memory_bytes)
      largest += more;
  }
  return largest;
}

ParallelPlan plan_of(Config config, const PlannedTraining& training) {
  const Cluster& cluster = training.cluster;
  ParallelPlan plan;
  plan.config = std::move(config);
  plan.data = copies_of_model(plan.config.distributed, cluster.ranks);
  plan.reason = why_not(plan.config, training);
  plan.accepted = plan.reason.empty();
  if (!plan.accepted) return plan;
  plan.items = items_of(plan.config, training);
  plan.memory_bytes = bytes_of_rank(plan.items, cluster.cuda);
  plan.time = step_time(plan.config, training, plan.items);
  for (MemoryItem& item : plan.items) item.bytes -= std::exchange(item.reused, 0);
  std::erase_if(plan.items,
                [&](const auto& item) { return item.bytes == 0 || !counts(item, cluster.cuda); });
  plan.fits = plan.memory_bytes <= cluster.memory_bytes;
  const MemoryItem& most = *std::ranges::max_element(plan.items, {}, &MemoryItem::bytes);
  plan.reason = plan.fits
                    ? plan.time.limit()
                    : fmt::format("needs {} of {}, of which {} {}", in_bytes(plan.memory_bytes),
                                  in_bytes(cluster.memory_bytes), most.name, in_bytes(most.bytes));
  return plan;
}

/// "key=value" of the strategy, which always is the first, and of what else differs in `config`.
std::vector<std::string> overrides_of(const Config& config, const Config& given) {
  const std::string strategy = "distributed_config.strategy";
  std::vector<std::string> changes = {
      fmt::format("{}={}", strategy, name_of(config.distributed.strategy))};
  for (const Field& field : config_fields()) {
    const Node value = current_value(field, config);
    if (field.path == strategy || same_value(value, current_value(field, given))) continue;
    changes.push_back(fmt::format("{}={}", field.path,
                                  value.kind == Kind::kString ? value.text : node_to_json(value)));
  }
  return changes;
}

/// The first that fits of smaller micro-batches, which keep the numbers of a training, then of
/// those with memory savers.
std::optional<ParallelPlan> changed_plan(const PlannedTraining& training,
                                         const DistributedConfig& how) {
  std::vector<MemorySaver> savers = savers_of(training.config);
  savers.insert(savers.begin(), {"", [](Config&) {}});
  for (const MemorySaver& saver : savers) {
    for (int64_t parts = 1; parts <= training.config.trainer.batch_size; ++parts) {
      if (training.config.trainer.batch_size % parts != 0) continue;
      Config config = divided(training, how, parts);
      saver.apply(config);
      if (ParallelPlan plan = plan_of(std::move(config), training); plan.fits) return plan;
    }
  }
  return std::nullopt;
}

std::vector<ParallelPlan> plans_of(const Divisions& all, const PlannedTraining& training) {
  if (training.task.memory_items(training.config, {}).empty()) {
    throw UserError(
        fmt::format("model: '{}' does not say what memory it needs; its memory_items() "
                    "must, see docs/add-a-model.md",
                    training.config.model));
  }
  std::vector<ParallelPlan> plans;
  for (const DistributedConfig& how : all)
    plans.push_back(plan_of(divided(training, how), training));
  return plans;
}

/// A line that states on how many more ranks it would fit, and how.
std::string way_out(PlannedTraining training) {
  constexpr int kDoublings = 10;
  training.cluster.nodes = 1;  // memory alone counts
  for (int i = 0; i < kDoublings; ++i) {
    training.cluster.ranks *= 2;
    for (const DistributedConfig& how : divisions(training)) {
      if (const auto plan = changed_plan(training, how))
        return fmt::format("{} ranks fit with {}: {} on each.", training.cluster.ranks,
                           fmt::join(overrides_of(plan->config, training.config), " "),
                           in_bytes(plan->memory_bytes));
    }
  }
  return "More ranks do not help. Use GPUs with more memory or a smaller model.";
}

}  // namespace

std::vector<MemoryItem> items_of_largest_rank(const Config& config, const TaskCost& task,
                                              ComputePlace place) {
  std::vector<MemoryItem> largest = task.memory_items(config, place);
  for (place.stage = 1; place.stage < config.distributed.pipeline; ++place.stage) {
    auto items = task.memory_items(config, place);
    if (bytes_of_rank(items, place.cuda) > bytes_of_rank(largest, place.cuda))
      largest = std::move(items);
  }
  return largest;
}

std::string ParallelPlan::name() const {
  const DistributedConfig& how = config.distributed;
  std::string text(name_of(how.strategy));
  if (how.tensor > 1)
    text += fmt::format(" tensor={}{}", how.tensor, how.sequence_parallel ? "+sp" : "");
  if (how.expert > 1) text += fmt::format(" expert={}", how.expert);
  if (how.pipeline > 1)
    text += fmt::format(" pipeline={} {}", how.pipeline, name_of(how.pipeline_schedule));
  return how.pipeline_chunks == 1 ? text : text + fmt::format("x{}", how.pipeline_chunks);
}

PlanAnswer plan_training(const PlannedTraining& training) {
  PlanAnswer answer;
  answer.plans = plans_of(divisions(training), training);
  answer.choice = fastest_of(answer.plans);
  std::vector<ParallelPlan> changed;
  for (ParallelPlan& plan : answer.plans) {
    if (plan.accepted) plan.largest_batch = largest_batch(plan.config, training);
    if (plan.fits || (answer.choice && !plan.accepted)) continue;
    const auto fitting = changed_plan(training, plan.config.distributed);
    if (!fitting) continue;
    const auto overrides = overrides_of(fitting->config, training.config);
    if (plan.accepted)
      plan.reason +=
          fmt::format("; fits with {}", fmt::join(overrides.begin() + 1, overrides.end(), " "));
    changed.push_back(*fitting);
  }
  if (!answer.choice) answer.choice = fastest_of(changed);
  if (answer.choice)
    answer.overrides = overrides_of(answer.choice->config, training.config);
  else
    answer.way_out = way_out(training);
  return answer;
}

std::vector<ParallelPlan> strategy_plans(const PlannedTraining& training) {
  Divisions all(kStrategies.size(), training.config.distributed);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].strategy = kStrategies.at(i);
  return plans_of(all, training);
}

std::optional<ParallelPlan> fastest_of(const std::vector<ParallelPlan>& plans) {
  constexpr double kClearlyFaster = 0.95;  // a ratio closer to 1 is within the formula's error
  std::optional<ParallelPlan> best;
  for (const ParallelPlan& plan : plans) {
    if (!plan.fits || (best && plan.config.distributed.strategy == Strategy::kZero3)) continue;
    const double relative = best ? plan.time.total_s() / best->time.total_s() : 0.0;
    const bool larger = best && plan.config.trainer.batch_size > best->config.trainer.batch_size;
    if (relative < kClearlyFaster || (larger && relative * kClearlyFaster <= 1.0)) best = plan;
  }
  return best;
}

std::vector<MemorySaver> savers_of(const Config& config) {
  if (!trains_causal_lm(config.task)) return {};
  return causal_architecture(config).memory_savers();
}

}  // namespace ddp::train
