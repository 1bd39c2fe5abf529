#include "trainer/app/plan/parallel_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/metrics/text.h"
#include "trainer/model/model_division.h"

namespace ddp::train {
namespace {

/// What a rank holds besides the training. Measured on CPUs; assumed on GPUs: CUDA's context,
/// NCCL's buffers, workspaces and the allocator's slack.
MemoryItem program_item(bool cuda) {
  constexpr int64_t kOnCpu = 165'000'000;
  constexpr int64_t kOnGpu = 1'000'000'000;
  return cuda ? MemoryItem{"context", kOnGpu} : MemoryItem{"program", kOnCpu, MemoryKind::kHost};
}

std::vector<MemoryItem> items_of(const Config& config, const PlannedTraining& training,
                                 const Cluster& cluster) {
  auto items =
      items_of_largest_rank(training.memory, config, {cluster.cuda, cluster.network.ranks});
  items.push_back(program_item(cluster.cuda));
  return items;
}

bool fits(const Config& config, const PlannedTraining& training, const Cluster& cluster) {
  return bytes_of_rank(items_of(config, training, cluster), cluster.cuda) <= cluster.memory_bytes;
}

int64_t largest_batch(Config config, const PlannedTraining& training, const Cluster& cluster) {
  constexpr int64_t kEnough = int64_t{1} << 20U;
  const auto fits_with = [&](int64_t samples) {
    config.trainer.batch_size = samples;
    return fits(config, training, cluster);
  };
  int64_t low = 0;
  int64_t high = 1;
  while (high < kEnough && fits_with(high)) low = std::exchange(high, 2 * high);
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (fits_with(middle) ? low : high) = middle;
  }
  return low;
}

std::string limit_text(const StepTime& time) {
  std::string text = fmt::format("{} takes {:.0f}% of a step", time.limited_by(),
                                 100 * time.longest_s() / time.total_s());
  if (time.idle_share > 0.0 && time.longest_s() != time.bubble_s)
    text += fmt::format(", stages are idle for {:.0f}%", 100 * time.idle_share);
  return text;
}

std::string need_text(const ParallelPlan& plan, const Cluster& cluster) {
  const MemoryItem* most = &plan.items.front();
  for (const MemoryItem& item : plan.items)
    if (counts(item, cluster.cuda) && item.bytes > most->bytes) most = &item;
  return fmt::format("needs {} of {}, of which {} {}", in_bytes(plan.memory_bytes),
                     in_bytes(cluster.memory_bytes), most->name, in_bytes(most->bytes));
}

struct Variant {
  Config config;
  std::vector<std::string> changes;
};

/// The same global batch in micro-batches of a `parts`-th.
Variant in_smaller_batches(Variant variant, int64_t parts) {
  TrainerConfig& trainer = variant.config.trainer;
  trainer.batch_size /= parts;
  variant.changes.push_back(fmt::format("trainer_config.batch_size={}", trainer.batch_size));
  if (!trainer.global_batch_size) trainer.grad_accumulation_steps *= parts;
  return variant;
}

void add_batches(std::vector<Variant>& variants, const Variant& whole) {
  variants.push_back(whole);
  const int64_t samples = whole.config.trainer.batch_size;
  for (int64_t parts = 2; parts <= samples; ++parts)
    if (samples % parts == 0) variants.push_back(in_smaller_batches(whole, parts));
}

/// Changes that keep the numbers of a training, the cheapest first.
std::vector<Variant> variants_of(const PlannedTraining& training, const Division& division,
                                 int64_t ranks) {
  Variant whole{divided(training.config, division, ranks), {}};
  std::vector<Variant> variants;
  add_batches(variants, whole);
  for (const MemorySaver& saver : training.savers) {
    saver.apply(whole.config);
    whole.changes.push_back(saver.change);
    add_batches(variants, whole);
  }
  return variants;
}

/// Keys of distributed_config besides the strategy that lead from `from` to `to`; those that are
/// not 1 or false are always among them.
std::vector<std::string> keys_of(const DistributedConfig& from, const DistributedConfig& to) {
  std::vector<std::string> keys;
  const auto add = [&](std::string_view key, auto before, auto now, auto usual) {
    if (now != usual || now != before)
      keys.push_back(fmt::format("distributed_config.{}={}", key, now));
  };
  add("tensor", from.tensor, to.tensor, int64_t{1});
  add("sequence_parallel", from.sequence_parallel, to.sequence_parallel, false);
  add("pipeline", from.pipeline, to.pipeline, int64_t{1});
  if (to.pipeline == 1) return keys;
  add("pipeline_schedule", name_of(from.pipeline_schedule), name_of(to.pipeline_schedule),
      name_of(PipelineSchedule::k1f1b));
  add("pipeline_chunks", from.pipeline_chunks, to.pipeline_chunks, int64_t{1});
  return keys;
}

ParallelPlan plan_of(const Variant& variant, const PlannedTraining& training,
                     const Cluster& cluster) {
  const Config& config = variant.config;
  const int64_t ranks = cluster.network.ranks;
  ParallelPlan plan;
  plan.division = division_of(config.distributed);
  plan.data = copies_of_model(config.distributed, ranks);
  plan.batch_size = config.trainer.batch_size;
  plan.changes = keys_of(training.config.distributed, config.distributed);
  plan.changes.insert(plan.changes.end(), variant.changes.begin(), variant.changes.end());
  const int64_t accumulation = config.trainer.grad_accumulation_steps;
  if (accumulation != training.config.trainer.grad_accumulation_steps)
    plan.changes.push_back(fmt::format("trainer_config.grad_accumulation_steps={}", accumulation));
  plan.reason = why_not(config, training, cluster.network);
  plan.accepted = plan.reason.empty();
  // Ranks that divide a model are computed for what can be divided alone.
  if (!plan.accepted && !plan.division.leaves_model_whole()) return plan;
  plan.items = items_of(config, training, cluster);
  plan.memory_bytes = bytes_of_rank(plan.items, cluster.cuda);
  plan.largest_batch = largest_batch(config, training, cluster);
  plan.time = step_time(config, training, cluster);
  plan.fits = plan.accepted && plan.memory_bytes <= cluster.memory_bytes;
  if (plan.fits) plan.reason = limit_text(plan.time);
  if (plan.reason.empty()) plan.reason = need_text(plan, cluster);
  return plan;
}

/// The first variant that fits.
std::optional<ParallelPlan> changed_plan(const PlannedTraining& training, const Division& division,
                                         const Cluster& cluster) {
  for (const Variant& variant : variants_of(training, division, cluster.network.ranks)) {
    if (!why_not(variant.config, training, cluster.network).empty()) continue;
    if (fits(variant.config, training, cluster)) return plan_of(variant, training, cluster);
  }
  return std::nullopt;
}

std::vector<Division> divisions_into_strategies(const PlannedTraining& training) {
  PlannedTraining whole = training;
  whole.layout.clear();
  auto all = divisions(whole, 1);
  for (Division& division : all) {
    const Strategy strategy = division.strategy;
    division = division_of(training.config.distributed);
    division.strategy = strategy;
  }
  return all;
}

std::vector<ParallelPlan> plans_of(const std::vector<Division>& all,
                                   const PlannedTraining& training, const Cluster& cluster) {
  std::vector<ParallelPlan> plans;
  for (const Division& division : all) {
    ParallelPlan plan =
        plan_of({divided(training.config, division, cluster.network.ranks), {}}, training, cluster);
    if (plan.accepted && !plan.fits) {
      const auto changed = changed_plan(training, division, cluster);
      if (changed) plan.reason += fmt::format("; fits with {}", fmt::join(changed->changes, " "));
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

/// ZeRO-3 sends half as much again as the others, and its time supposes that all of it overlaps: it
/// is for what fits no other way.
void take_faster(std::optional<ParallelPlan>& best, const ParallelPlan& plan) {
  if (!plan.fits || (best && plan.division.strategy == Strategy::kZero3)) return;
  const double relative = best ? plan.time.total_s() / best->time.total_s() : 0.0;
  const bool about_as_fast = relative * kClearlyFaster <= 1.0;
  if (relative < kClearlyFaster || (about_as_fast && plan.batch_size > best->batch_size))
    best = plan;
}

/// What doublings of the ranks lead to.
struct MoreRanks {
  std::optional<ParallelPlan> fitting;  ///< On the fewest ranks.
  std::optional<Variant> leanest;       ///< If none fits.
  int64_t ranks = 0;                    ///< The leanest variant's.
  int64_t bytes = 0;
};

MoreRanks with_more_ranks(const PlannedTraining& training, Cluster cluster) {
  constexpr int kDoublings = 10;
  cluster.network.nodes = 1;  // memory alone counts
  MoreRanks found;
  for (int i = 0; i < kDoublings; ++i) {
    const int64_t ranks = cluster.network.ranks *= 2;
    for (const Division& division : divisions(training, ranks)) {
      for (const Variant& variant : variants_of(training, division, ranks)) {
        if (!why_not(variant.config, training, cluster.network).empty()) continue;
        const int64_t bytes =
            bytes_of_rank(items_of(variant.config, training, cluster), cluster.cuda);
        if (bytes <= cluster.memory_bytes)
          return {plan_of(variant, training, cluster), {}, ranks, bytes};
        if (!found.leanest || bytes < found.bytes) found = {{}, variant, ranks, bytes};
      }
    }
  }
  return found;
}

/// "zero1 and distributed_config.pipeline=2"
std::string name_of_way(const Config& config, const PlannedTraining& training,
                        const std::vector<std::string>& changes) {
  auto keys = keys_of(training.config.distributed, config.distributed);
  keys.insert(keys.end(), changes.begin(), changes.end());
  return fmt::format("{}{}{}", name_of(config.distributed.strategy), keys.empty() ? "" : " and ",
                     fmt::join(keys, " "));
}

}  // namespace

std::string_view ParallelPlan::strategy_name() const { return name_of(division.strategy); }

std::string ParallelPlan::name() const {
  std::string text(strategy_name());
  if (division.tensor > 1)
    text += fmt::format(" tensor={}{}", division.tensor, division.sequence_parallel ? "+sp" : "");
  if (division.pipeline == 1) return text;
  text += fmt::format(" pipeline={} {}", division.pipeline, name_of(division.schedule));
  return division.chunks == 1 ? text : text + fmt::format("x{}", division.chunks);
}

std::vector<ParallelPlan> parallel_plans(const PlannedTraining& training, const Cluster& cluster) {
  return plans_of(divisions(training, cluster.network.ranks), training, cluster);
}

std::vector<ParallelPlan> strategy_plans(const PlannedTraining& training, const Cluster& cluster) {
  return plans_of(divisions_into_strategies(training), training, cluster);
}

std::optional<ParallelPlan> chosen_plan(const std::vector<ParallelPlan>& plans,
                                        const PlannedTraining& training, const Cluster& cluster) {
  std::optional<ParallelPlan> best;
  for (const ParallelPlan& plan : plans) take_faster(best, plan);
  if (best) return best;
  for (const ParallelPlan& plan : plans) {
    if (const auto changed = changed_plan(training, plan.division, cluster))
      take_faster(best, *changed);
  }
  return best;
}

std::vector<std::string> ways_out(const PlannedTraining& training, const Cluster& cluster) {
  constexpr int64_t kBytesWhileComputing = 8;  // its weights and gradients
  const int64_t layer = kBytesWhileComputing * training.largest_layer;
  std::vector<std::string> ways;
  if (layer > cluster.memory_bytes) {
    ways.push_back(fmt::format(
        "The largest layer has {} parameters, whose weights and gradients alone take {}. Only "
        "tensor parallelism divides a layer (ZeRO-3 gathers it whole).",
        short_number(static_cast<double>(training.largest_layer)), in_bytes(layer)));
  }
  const MoreRanks more = with_more_ranks(training, cluster);
  if (const auto& plan = more.fitting) {
    const int64_t ranks = plan->data * plan->division.tensor * plan->division.pipeline;
    ways.push_back(fmt::format("{} ranks fit with strategy {}{}{}: {} on each.", ranks,
                               plan->strategy_name(), plan->changes.empty() ? "" : " and ",
                               fmt::join(plan->changes, " "), in_bytes(plan->memory_bytes)));
    return ways;
  }
  if (ways.empty() && more.leanest) {
    ways.push_back(fmt::format(
        "More ranks do not help: even with {} on {} ranks a rank holds a layer's weights and "
        "gradients and its own activations, and needs {} at least.",
        name_of_way(more.leanest->config, training, more.leanest->changes), more.ranks,
        in_bytes(more.bytes)));
  }
  if (ways.empty()) ways.emplace_back("More ranks do not help.");
  ways.back() += " Use GPUs with more memory or a smaller model.";
  return ways;
}

}  // namespace ddp::train
