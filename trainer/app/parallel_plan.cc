#include "trainer/app/parallel_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/metrics/text.h"

namespace ddp::train {
namespace {

/// Nearer than this, two estimates do not tell which one is faster.
constexpr double kClearlyFaster = 0.95;

/// What a rank holds besides the training. Measured on CPUs; assumed on GPUs: CUDA's context,
/// NCCL's buffers, workspaces and the allocator's slack.
MemoryItem program_item(bool cuda) {
  constexpr int64_t kOnCpu = 165'000'000;
  constexpr int64_t kOnGpu = 1'000'000'000;
  return cuda ? MemoryItem{"context", kOnGpu} : MemoryItem{"program", kOnCpu, MemoryKind::kHost};
}

double bytes_of(const std::vector<MemoryItem>& items, std::string_view name) {
  for (const MemoryItem& item : items)
    if (item.name == name) return static_cast<double>(item.bytes);
  return 0.0;
}

Config with_strategy(Config config, Strategy strategy) {
  config.distributed.strategy = strategy;
  return config;
}

/// The collectives of a step.
struct Exchange {
  double passes = 1.0;       ///< Backward passes that gradients are reduced in.
  double seconds = 0.0;      ///< Of the reduction in each.
  double last_bucket = 0.0;  ///< Seconds of the part that starts when the pass is over.
  double gather = 0.0;       ///< Seconds of sending updated weights.
  double bytes = 0.0;
  double first_unit = 0.0;  ///< Seconds that each forward pass waits for its first weights.
  double collect = 0.0;     ///< Seconds of collecting all weights for it.

  double exposed(double forward_s, double backward_s) const {
    return passes * (std::max(last_bucket, seconds - backward_s) +
                     std::max(first_unit, collect - forward_s)) +
           gather;
  }
};

/// ZeRO's buckets hold parts of parameters.
double buckets_of(const DistributedConfig& how, int64_t matrices, double gradient_bytes) {
  constexpr double kMiB = 1024.0 * 1024.0;
  const double filled = std::max(1.0, std::ceil(gradient_bytes / (how.bucket_cap_mb * kMiB)));
  const bool whole = how.strategy == Strategy::kDdp && matrices > 0;
  return whole ? std::min(filled, static_cast<double>(matrices)) : filled;
}

Exchange exchange_of(const Config& config, double weight_bytes, double buckets,
                     const Network& network) {
  const DistributedConfig& how = config.distributed;
  const bool halved = how.gradient_compression != GradientCompression::kNone;
  const double gradients = weight_bytes * (halved ? 0.5 : 1.0);
  const double of_gradients = all_gather_seconds(network, gradients / buckets);
  const double sent = all_gather_bytes(network.ranks, gradients);
  if (how.strategy == Strategy::kDdp)
    return {1.0, 2 * buckets * of_gradients, 2 * of_gradients, 0.0, 2 * sent};
  const double passes =
      how.strategy == Strategy::kZero2
          ? static_cast<double>(micro_batches_of_rank(config.trainer, network.ranks))
          : 1.0;
  return {passes, buckets * of_gradients, of_gradients,
          buckets * all_gather_seconds(network, weight_bytes / buckets),
          passes * sent + all_gather_bytes(network.ranks, weight_bytes)};
}

/// ZeRO-3: weights are collected unit by unit for each forward pass and once more for the backward
/// pass, in which gradients are reduced.
Exchange exchange_of_units(const Config& config, double weight_bytes,
                           const PlannedTraining& training, const Network& network) {
  const auto units = static_cast<double>(std::max<int64_t>(1, training.units));
  const double root_bytes = 4.0 * static_cast<double>(training.root);
  const double of_root = all_gather_seconds(network, root_bytes);
  const double of_unit = all_gather_seconds(network, (weight_bytes - root_bytes) / units);
  Exchange exchange;
  exchange.passes = static_cast<double>(micro_batches_of_rank(config.trainer, network.ranks));
  exchange.seconds = 2 * (units * of_unit + of_root);
  exchange.last_bucket = of_unit + of_root;
  exchange.first_unit = of_root + of_unit;
  exchange.collect = of_root + units * of_unit;
  exchange.bytes = exchange.passes * all_gather_bytes(network.ranks, 3 * weight_bytes);
  return exchange;
}

/// Bytes that the update reads and writes on one process: gradients; weights, optimizer and
/// averages twice.
double update_bytes(const std::vector<MemoryItem>& whole) {
  return 3 * bytes_of(whole, "gradients") +
         2 * (bytes_of(whole, "optimizer") + bytes_of(whole, "averaged_weights"));
}

void take_times(ParallelPlan& plan, const Config& config, const PlannedTraining& training,
                const Cluster& cluster) {
  constexpr double kBackwardShare = 2.0 / 3.0;
  const auto whole =
      training.memory(with_strategy(config, Strategy::kDdp), {cluster.cuda, plan.data});
  const double flops =
      static_cast<double>(config.trainer.batch_size) * training.flops_per_sample(config);
  const double micro_batch_s = flops / cluster.flops_per_s;
  const double gradients = bytes_of(whole, "gradients");
  const Exchange exchange =
      config.distributed.strategy == Strategy::kZero3
          ? exchange_of_units(config, gradients, training, cluster.network)
          : exchange_of(config, gradients,
                        buckets_of(config.distributed, training.matrices, gradients),
                        cluster.network);
  const double sharers =
      config.distributed.strategy == Strategy::kDdp ? 1.0 : static_cast<double>(plan.data);
  plan.sent_bytes = exchange.bytes;
  plan.time.compute_s =
      micro_batch_s * static_cast<double>(micro_batches_of_rank(config.trainer, plan.data));
  plan.time.exposed_s =
      exchange.exposed((1.0 - kBackwardShare) * micro_batch_s, kBackwardShare * micro_batch_s);
  plan.time.update_s = update_bytes(whole) / sharers / cluster.memory_bytes_per_s;
}

std::vector<MemoryItem> items_of(const Config& config, const PlannedTraining& training,
                                 const Cluster& cluster) {
  auto items = training.memory(config, {cluster.cuda, cluster.network.ranks});
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

/// Why a strategy cannot be used here at all; "" if it can.
std::string why_not(const Config& config, Strategy strategy, int64_t ranks) {
  if (strategy == Strategy::kDdp) return "";
  if (ranks == 1) return "divides the state among ranks, and there is one";
  if (config.trainer.ram_snapshots && config.trainer.snapshot_shards == AutoSwitch::kFalse)
    return "copies to memory only without trainer_config.snapshot_shards=false";
  if (config.distributed.gradient_compression != GradientCompression::kNone)
    return "works without distributed_config.gradient_compression only";
  return "";
}

std::string limit_text(const StepTime& time) {
  const double longest = std::max({time.compute_s, time.exposed_s, time.update_s});
  return fmt::format("{} takes {:.0f}% of a step", time.limited_by(),
                     100 * longest / time.total_s());
}

std::string need_text(const ParallelPlan& plan, const Cluster& cluster) {
  const MemoryItem* most = &plan.items.front();
  for (const MemoryItem& item : plan.items)
    if (counts(item, cluster.cuda) && item.bytes > most->bytes) most = &item;
  return fmt::format("needs {} of {}, of which {} {}", in_bytes(plan.memory_bytes),
                     in_bytes(cluster.memory_bytes), most->name, in_bytes(most->bytes));
}

/// The plan of a configuration, its strategy included.
ParallelPlan plan_of(const Config& config, const PlannedTraining& training,
                     const Cluster& cluster) {
  ParallelPlan plan;
  plan.strategy = config.distributed.strategy;
  plan.data = cluster.network.ranks;
  plan.batch_size = config.trainer.batch_size;
  plan.items = items_of(config, training, cluster);
  plan.memory_bytes = bytes_of_rank(plan.items, cluster.cuda);
  plan.largest_batch = largest_batch(config, training, cluster);
  take_times(plan, config, training, cluster);
  plan.reason = why_not(config, plan.strategy, plan.data);
  plan.fits = plan.reason.empty() && plan.memory_bytes <= cluster.memory_bytes;
  if (plan.fits) plan.reason = limit_text(plan.time);
  if (plan.reason.empty()) plan.reason = need_text(plan, cluster);
  return plan;
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
  if (trainer.global_batch_size) return variant;
  trainer.grad_accumulation_steps *= parts;
  variant.changes.push_back(
      fmt::format("trainer_config.grad_accumulation_steps={}", trainer.grad_accumulation_steps));
  return variant;
}

void add_batches(std::vector<Variant>& variants, const Variant& whole) {
  variants.push_back(whole);
  const int64_t samples = whole.config.trainer.batch_size;
  for (int64_t parts = 2; parts <= samples; ++parts)
    if (samples % parts == 0) variants.push_back(in_smaller_batches(whole, parts));
}

/// Changes that keep the numbers of a training, the cheapest first.
std::vector<Variant> variants_of(const PlannedTraining& training, Strategy strategy) {
  Variant whole{with_strategy(training.config, strategy), {}};
  std::vector<Variant> variants;
  add_batches(variants, whole);
  for (const MemorySaver& saver : training.savers) {
    saver.apply(whole.config);
    whole.changes.push_back(saver.change);
    add_batches(variants, whole);
  }
  return variants;
}

/// The first variant that fits.
std::optional<ParallelPlan> changed_plan(const PlannedTraining& training, Strategy strategy,
                                         const Cluster& cluster) {
  if (!why_not(training.config, strategy, cluster.network.ranks).empty()) return std::nullopt;
  for (const Variant& variant : variants_of(training, strategy)) {
    if (!fits(variant.config, training, cluster)) continue;
    ParallelPlan plan = plan_of(variant.config, training, cluster);
    plan.changes = variant.changes;
    return plan;
  }
  return std::nullopt;
}

constexpr Strategy kStrategies[] = {Strategy::kDdp, Strategy::kZero1, Strategy::kZero2,
                                    Strategy::kZero3};

/// ZeRO-3 sends half as much again as the others, and its time supposes that all of it overlaps: it
/// is for what fits no other way.
void take_faster(std::optional<ParallelPlan>& best, const ParallelPlan& plan) {
  if (!plan.fits || (best && plan.strategy == Strategy::kZero3)) return;
  const double relative = best ? plan.time.total_s() / best->time.total_s() : 0.0;
  const bool about_as_fast = relative * kClearlyFaster <= 1.0;
  if (relative < kClearlyFaster || (about_as_fast && plan.batch_size > best->batch_size))
    best = plan;
}

/// The fewest ranks, of doublings, on which some plan fits.
std::optional<ParallelPlan> plan_with_more_ranks(const PlannedTraining& training, Cluster cluster) {
  constexpr int kDoublings = 12;
  cluster.network.nodes = 1;  // memory alone counts
  for (int i = 0; i < kDoublings; ++i) {
    cluster.network.ranks *= 2;
    for (const Strategy strategy : kStrategies)
      if (auto plan = changed_plan(training, strategy, cluster)) return plan;
  }
  return std::nullopt;
}

/// What the leanest plan needs on as many ranks as one likes.
int64_t least_memory(const PlannedTraining& training, Cluster cluster) {
  constexpr int64_t kManyRanks = 1 << 20;
  cluster.network.ranks = kManyRanks;
  const auto leanest = variants_of(training, Strategy::kZero3).back().config;
  return bytes_of_rank(items_of(leanest, training, cluster), cluster.cuda);
}

}  // namespace

std::string_view StepTime::limited_by() const {
  if (compute_s >= std::max(exposed_s, update_s)) return "computation";
  return exposed_s >= update_s ? "communication" : "update";
}

std::string_view ParallelPlan::strategy_name() const { return name_of(strategy); }

std::vector<ParallelPlan> parallel_plans(const PlannedTraining& training, const Cluster& cluster) {
  std::vector<ParallelPlan> plans;
  for (const Strategy strategy : kStrategies) {
    ParallelPlan plan = plan_of(with_strategy(training.config, strategy), training, cluster);
    if (!plan.fits) {
      const auto changed = changed_plan(training, strategy, cluster);
      if (changed) plan.reason += fmt::format("; fits with {}", fmt::join(changed->changes, " "));
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

std::optional<ParallelPlan> chosen_plan(const std::vector<ParallelPlan>& plans,
                                        const PlannedTraining& training, const Cluster& cluster) {
  std::optional<ParallelPlan> best;
  for (const ParallelPlan& plan : plans) take_faster(best, plan);
  if (best) return best;
  for (const Strategy strategy : kStrategies)
    if (const auto changed = changed_plan(training, strategy, cluster)) take_faster(best, *changed);
  return best;
}

std::vector<std::string> ways_out(const PlannedTraining& training, const Cluster& cluster) {
  constexpr int64_t kBytesWhileComputing = 8;  // its weights and gradients
  const int64_t layer = kBytesWhileComputing * training.largest_layer;
  if (layer > cluster.memory_bytes) {
    return {fmt::format(
        "The largest layer has {} parameters, whose weights and gradients alone take {}. Only "
        "tensor parallelism divides a layer (ZeRO-3 gathers it whole), and this version has none: "
        "use GPUs with more memory or a narrower model.",
        short_number(static_cast<double>(training.largest_layer)), in_bytes(layer))};
  }
  if (const auto plan = plan_with_more_ranks(training, cluster)) {
    return {fmt::format("{} ranks fit with strategy {}{}{}: {} on each.", plan->data,
                        plan->strategy_name(), plan->changes.empty() ? "" : " and ",
                        fmt::join(plan->changes, " "), in_bytes(plan->memory_bytes))};
  }
  return {fmt::format(
      "More ranks do not help: even with zero3 a rank holds a layer's weights and gradients and "
      "its "
      "own activations, and needs {} at least. Use GPUs with that memory or a smaller model; "
      "dividing layers takes pipeline or tensor parallelism, which this version does not have.",
      in_bytes(least_memory(training, cluster)))};
}

}  // namespace ddp::train
