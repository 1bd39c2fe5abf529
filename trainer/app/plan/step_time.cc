// How long one optimizer step takes, by the formula in docs/choosing-a-strategy.md, which also
// lists what it leaves out.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "trainer/app/plan/parallel_plan.h"
#include "trainer/model/model_division.h"

namespace ddp::train {
namespace {

double bytes_of(const std::vector<MemoryItem>& items, std::string_view name) {
  for (const MemoryItem& item : items)
    if (item.name == name) return static_cast<double>(item.bytes);
  return 0.0;
}

/// Share of the model's computation on the rank whose stages have most of it.
double largest_stage(const Config& config, const WeightsLayout& layout, const StageCosts& costs) {
  if (config.distributed.pipeline == 1) return 1.0;
  double most = 0.0;
  for (int64_t stage = 0; stage < config.distributed.pipeline; ++stage) {
    const StageLoad load = stage_load(config, layout, {.stage = stage});
    most = std::max(most, load.layers * costs.layer + (load.last ? costs.head : 0.0));
  }
  return most / (static_cast<double>(costs.layers) * costs.layer + costs.head);
}

/// Adds `count` all-gathers or reduce-scatters, of which computation hides `hidden_s`.
void add_gathers(StepTime& time, double count, const Cluster& among, double bytes,
                 double hidden_s) {
  const auto ranks = static_cast<double>(among.ranks);
  time.exposed_s += std::max(0.0, count * all_gather_seconds(among, bytes) - hidden_s);
  time.sent_bytes += count * bytes * (ranks - 1) / ranks;
}

/// What the copies of the model send each other for `weights` bytes of them: below a backward pass,
/// which takes two thirds of a micro-batch, and below a forward pass.
void add_exchange_of_copies(StepTime& time, const DistributedConfig& how, const Cluster& copies,
                            double weights, double passes, double micro_batch_s) {
  const bool ddp = how.strategy == Strategy::kDdp, zero3 = how.strategy == Strategy::kZero3;
  const bool halved = how.gradient_compression != GradientCompression::kNone;
  const double backwards = zero3 || how.strategy == Strategy::kZero2 ? passes : 1.0;
  const double forwards = ddp ? 0.0 : zero3 ? passes : 1.0;
  const double hiding_s = copies.cuda ? micro_batch_s / 3 : 0.0;  // the cores of CPUs also copy
  add_gathers(time, backwards * (zero3 || (ddp && !halved) ? 2 : 1), copies, weights,
              2 * backwards * hiding_s);
  add_gathers(time, forwards, copies, weights, forwards * hiding_s);
}

/// Gradients are read by the norm, the clipping and the update; weights, state and averages are
/// read and written. With offload gradients and weights cross a PCIe 4.0 bus.
double update_seconds(const DistributedConfig& how, const Cluster& cluster,
                      const std::vector<MemoryItem>& items) {
  constexpr double kBusBytesPerSecond = 25e9;
  const double gradients = bytes_of(items, "gradients");
  if (cluster.cuda && how.offload == Offload::kOptimizer) return 2 * gradients / kBusBytesPerSecond;
  const double state = bytes_of(items, "optimizer") + bytes_of(items, "averaged_weights");
  return (3 * gradients + 2 * state) / cluster.memory_bytes_per_s;
}

}  // namespace

std::string StepTime::limit() const {
  using Part = std::pair<double, std::string_view>;
  const auto [longest, name] =
      std::max({Part(compute_s, "computation"), Part(exposed_s, "communication"),
                Part(bubble_s, "the pipeline's bubble"), Part(update_s, "update")});
  return fmt::format("{} takes {:.0f}% of a step", name, 100 * longest / total_s());
}

StepTime step_time(const Config& config, const PlannedTraining& training,
                   const std::vector<MemoryItem>& items) {
  const DistributedConfig& how = config.distributed;
  const TaskCost& task = training.task;
  const WeightsLayout layout = task.layout();
  const StageCosts costs = stage_costs(layout, config.data.block_size);
  Cluster copies = training.cluster, sharers = training.cluster;
  copies.ranks = copies_of_model(how, copies.ranks);
  copies.nodes = std::min(copies.nodes, copies.ranks);
  sharers.ranks = how.tensor;
  sharers.nodes = 1;
  const double recomputed =
      trains_causal_lm(config.task) ? causal_architecture(config).recomputed_share(config) : 0.0;
  const auto passes = static_cast<double>(micro_batches_of_rank(config.trainer, copies.ranks));
  const auto chunks = static_cast<double>(how.pipeline_chunks);
  const double micro_batch_s =
      static_cast<double>(config.trainer.batch_size * task.units_per_sample()) *
      task.flops_per_unit() * (1.0 + recomputed / 3) / static_cast<double>(how.tensor) /
      copies.flops_per_s;
  const double stage_s = micro_batch_s * largest_stage(config, layout, costs);
  StepTime time;
  time.compute_s = passes * stage_s;
  time.bubble_s = (micro_batch_s - stage_s) / chunks;
  time.update_s = update_seconds(how, copies, items);
  // Each layer's two sums forward and two backward, with recomputation the first two again; a sum
  // is two gathers. From stage to stage go a hidden state and its gradient.
  const int64_t width = layout.empty() ? 0 : layout.front().shape.back();  // the token embedding's
  const double hidden = static_cast<double>(config.trainer.batch_size * config.data.block_size) *
                        static_cast<double>(width);
  const double sums = (4.0 + 2.0 * recomputed) * passes * static_cast<double>(costs.layers) /
                      static_cast<double>(how.pipeline);
  add_gathers(time, 2 * sums, sharers, hidden * (config.trainer.use_amp ? 2.0 : 4.0), 0.0);
  const auto parts = static_cast<double>(how.sequence_parallel ? how.tensor : 1);
  if (how.pipeline > 1) time.sent_bytes += 2 * passes * chunks * hidden * 4 / parts;
  const auto owners = static_cast<double>(divides_state(how.strategy) ? copies.ranks : 1);
  add_exchange_of_copies(time, how, copies, bytes_of(items, "gradients") * owners, passes, stage_s);
  return time;
}

}  // namespace ddp::train
