#include "trainer/app/plan/step_time.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "trainer/model/model_division.h"
#include "trainer/parallel/strategy/pipeline_time.h"

namespace ddp::train {
namespace {

constexpr double kBackwardShare = 2.0 / 3.0;

double bytes_of(const std::vector<MemoryItem>& items, std::string_view name) {
  for (const MemoryItem& item : items)
    if (item.name == name) return static_cast<double>(item.bytes);
  return 0.0;
}

/// The collectives of a step.
struct Exchange {
  double passes = 1.0;        ///< Backward passes that gradients are reduced in.
  double seconds = 0.0;       ///< Of the reduction in each.
  double last_bucket = 0.0;   ///< Seconds of the part that starts when the pass is over.
  double gather = 0.0;        ///< Seconds of sending updated weights, before the next forward pass
  double gather_below = 0.0;  ///< or below it.
  double bytes = 0.0;
  double first_unit = 0.0;  ///< Seconds that each forward pass waits for its first weights.
  double collect = 0.0;     ///< Seconds of collecting all weights for it.

  /// With this much computation in each pass to hide behind.
  double exposed(double forward_s, double backward_s) const {
    return passes * (std::max(last_bucket, seconds - backward_s) +
                     std::max(first_unit, collect - forward_s)) +
           gather + std::max(0.0, gather_below - forward_s);
  }
};

/// ZeRO's buckets hold parts of parameters.
double buckets_of(const DistributedConfig& how, int64_t matrices, double gradient_bytes) {
  constexpr double kMiB = 1024.0 * 1024.0;
  const double filled = std::max(1.0, std::ceil(gradient_bytes / (how.bucket_cap_mb * kMiB)));
  const bool whole = how.strategy == Strategy::kDdp && matrices > 0;
  return whole ? std::min(filled, static_cast<double>(matrices)) : filled;
}

/// Bytes of the weights outside of units, on a rank.
double root_bytes(const Config& config, const PlannedTraining& training) {
  return 4.0 * static_cast<double>(training.root) / static_cast<double>(config.distributed.tensor);
}

Exchange exchange_of(const Config& config, double weight_bytes, const PlannedTraining& training,
                     const Network& network) {
  const DistributedConfig& how = config.distributed;
  const bool halved = how.gradient_compression != GradientCompression::kNone;
  const double gradients = weight_bytes * (halved ? 0.5 : 1.0);
  const double buckets = buckets_of(how, training.matrices, weight_bytes);
  const double of_gradients = all_gather_seconds(network, gradients / buckets);
  const double sent = all_gather_bytes(network.ranks, gradients);
  if (how.strategy == Strategy::kDdp)
    return {1.0, 2 * buckets * of_gradients, 2 * of_gradients, 0.0, 0.0, 2 * sent};
  const double passes =
      how.strategy == Strategy::kZero2
          ? static_cast<double>(micro_batches_of_rank(config.trainer, network.ranks))
          : 1.0;
  const double gather = buckets * all_gather_seconds(network, weight_bytes / buckets);
  const bool unit_by_unit = how.pipeline == 1 && training.units > 0;
  const double before_forward =
      unit_by_unit ? std::min(1.0, root_bytes(config, training) / weight_bytes) : 1.0;
  return {passes,
          buckets * of_gradients,
          of_gradients,
          before_forward * gather,
          (1.0 - before_forward) * gather,
          passes * sent + all_gather_bytes(network.ranks, weight_bytes)};
}

/// ZeRO-3: weights are collected unit by unit for each forward pass and once more for the backward
/// pass, in which gradients are reduced.
Exchange exchange_of_units(const Config& config, double weight_bytes,
                           const PlannedTraining& training, const Network& network) {
  const auto units = static_cast<double>(std::max<int64_t>(1, training.units));
  const double root = root_bytes(config, training);
  const double of_root = all_gather_seconds(network, root);
  const double of_unit = all_gather_seconds(network, (weight_bytes - root) / units);
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

/// The network between ranks that hold the same part of different copies.
Network network_of_copies(const Network& all, int64_t ranks_of_copy) {
  Network network = all;
  network.ranks = std::max<int64_t>(1, all.ranks / ranks_of_copy);
  const bool on_one_node = all.ranks_of_node() % ranks_of_copy == 0;
  network.nodes = on_one_node ? all.nodes : network.ranks;
  if (all.nodes == 1) network.nodes = 1;
  return network;
}

/// The network between ranks that share layers, which are neighbours.
Network network_of_layer(const Network& all, int64_t tensor) {
  Network network = all;
  network.ranks = tensor;
  network.nodes = tensor <= all.ranks_of_node() ? 1 : tensor / all.ranks_of_node();
  return network;
}

/// Seconds and bytes that ranks which share layers exchange for one micro-batch.
struct LayerExchange {
  double of_layer = 0.0;
  double outside = 0.0;  ///< Of embedding and output layer.
  double bytes = 0.0;    ///< Of all layers and of those.
};

/// Two sums forward, two backward; with recomputation the first two again. With sequence_parallel
/// each is a reduce-scatter and an all-gather.
LayerExchange layer_exchange(const Config& config, const PlannedTraining& training,
                             const StageCosts& costs, const Network& network) {
  const int64_t ranks = config.distributed.tensor;
  if (ranks == 1) return {};
  const double number = config.trainer.use_amp ? 2.0 : 4.0;
  double width = 0.0;
  for (const WeightPlace& place : training.layout)
    if (place.split == Split::kVocabulary) width = static_cast<double>(place.shape[1]);
  const double row =
      static_cast<double>(config.trainer.batch_size * config.data.block_size) * width * number;
  const Network between = network_of_layer(network, ranks);
  const double sum_s = 2 * all_gather_seconds(between, row);
  const double sums = training.recomputes ? 6.0 : 4.0;
  constexpr double kOutside = 2.0;
  return {sums * sum_s, kOutside * sum_s,
          (sums * static_cast<double>(costs.layers) + kOutside) * 2 * all_gather_bytes(ranks, row)};
}

/// Seconds of one micro-batch in each stage, including the exchange between ranks that share
/// layers.
std::vector<StageSeconds> stage_seconds(const Config& config, const StageCosts& costs,
                                        const LayerExchange& layers, double micro_batch_s) {
  const int64_t stages = config.distributed.pipeline * config.distributed.pipeline_chunks;
  const double all = static_cast<double>(costs.layers) * costs.layer + costs.head;
  std::vector<StageSeconds> seconds;
  for (const LayerRange& range : cut_into_stages(costs, static_cast<int>(stages))) {
    const auto blocks = static_cast<double>(range.end - range.begin);
    const bool last = range.end == costs.layers;
    const double computed =
        micro_batch_s * (blocks * costs.layer + (last ? costs.head : 0.0)) / all;
    const bool outermost = last || range.begin == 0;
    const double exchanged = blocks * layers.of_layer + (outermost ? layers.outside / 2 : 0.0);
    seconds.push_back({(1.0 - kBackwardShare) * computed + exchanged / 2,
                       kBackwardShare * computed + exchanged / 2});
  }
  return seconds;
}

/// From one stage to the next.
double message_seconds(const Config& config, const Network& network, double bytes) {
  const bool far = network.nodes > 1 && ranks_of_copy(config.distributed) > network.ranks_of_node();
  const Link& link = far ? network.between : network.inside;
  return link.latency_s + bytes / link.bytes_per_s;
}

double message_bytes_of(const Config& config, const WeightsLayout& layout) {
  constexpr double kFloat = 4.0;
  double width = 0.0;
  for (const WeightPlace& place : layout)
    if (place.split == Split::kVocabulary) width = static_cast<double>(place.shape[1]);
  const double rows = config.distributed.sequence_parallel
                          ? static_cast<double>(config.distributed.tensor)
                          : 1.0;  // ranks that each hand on a part of them
  return kFloat * static_cast<double>(config.trainer.batch_size * config.data.block_size) * width /
         rows;
}

/// Seconds for gradients to reach host memory and weights to return, while the host updates what
/// has arrived; assumes a PCIe 4.0 bus.
double bus_seconds(double gradient_bytes) {
  constexpr double kBusBytesPerSecond = 25e9;
  return 2 * gradient_bytes / kBusBytesPerSecond;
}

/// Whether a rank's gradients are complete before the last of its backward passes is over: they are
/// exchanged in it. Those of several chunks come in several passes, as PipelineExecutor has it.
bool exchanges_in_last_pass(const DistributedConfig& how) { return how.pipeline_chunks == 1; }

/// The passes of all micro-batches. Adds to `time`; returns the seconds of the backward pass in
/// which gradients are exchanged, 0 if they are exchanged after it.
double add_pipeline(StepTime& time, const Config& config, const PlannedTraining& training,
                    const Cluster& cluster, double micro_batch_s) {
  const DistributedConfig& how = config.distributed;
  const StageCosts costs = stage_costs(training.layout, config.data.block_size);
  const LayerExchange layers = layer_exchange(config, training, costs, cluster.network);
  const int64_t micro_batches =
      micro_batches_of_rank(config.trainer, copies_of_model(how, cluster.network.ranks));
  const auto passes = static_cast<double>(micro_batches);
  const auto stages = stage_seconds(config, costs, layers, micro_batch_s);
  const double bytes = message_bytes_of(config, training.layout);
  const PipelineShape shape{static_cast<int>(how.pipeline), static_cast<int>(how.pipeline_chunks),
                            micro_batches};
  const PipelineTime played = pipeline_time(how.pipeline_schedule, shape, stages,
                                            message_seconds(config, cluster.network, bytes));
  std::vector<double> busy(static_cast<std::size_t>(how.pipeline), 0.0);
  for (std::size_t i = 0; i < stages.size(); ++i)
    busy[i % busy.size()] += passes * (stages[i].forward + stages[i].backward);
  const double most = *std::max_element(busy.begin(), busy.end());
  const double exchanged = passes * (static_cast<double>(costs.layers) /
                                         static_cast<double>(how.pipeline) * layers.of_layer +
                                     layers.outside / static_cast<double>(how.pipeline));
  time.exposed_s = std::min(most, exchanged);
  time.compute_s = most - time.exposed_s;
  time.bubble_s = played.seconds - most;
  time.idle_share = how.pipeline > 1 ? played.idle_share : 0.0;
  time.sent_bytes = passes * layers.bytes / static_cast<double>(how.pipeline);
  if (how.pipeline > 1)
    time.sent_bytes += 2 * passes * bytes * static_cast<double>(how.pipeline_chunks);
  return exchanges_in_last_pass(how) ? stages.front().backward : 0.0;
}

}  // namespace

double StepTime::longest_s() const { return std::max({compute_s, bubble_s, exposed_s, update_s}); }

std::string_view StepTime::limited_by() const {
  const double longest = longest_s();
  if (compute_s == longest) return "computation";
  if (exposed_s == longest) return "communication";
  return bubble_s == longest ? "the pipeline's bubble" : "update";
}

StepTime step_time(const Config& config, const PlannedTraining& training, const Cluster& cluster) {
  const DistributedConfig& how = config.distributed;
  const Network network = network_of_copies(cluster.network, ranks_of_copy(how));
  Config undivided = config;
  undivided.distributed.strategy = Strategy::kDdp;
  const auto whole =
      items_of_largest_rank(training.memory, undivided, {cluster.cuda, cluster.network.ranks});
  const double micro_batch_s = static_cast<double>(config.trainer.batch_size) *
                               training.flops_per_sample(config) / static_cast<double>(how.tensor) /
                               cluster.flops_per_s;
  const double gradients = bytes_of(whole, "gradients");
  const Exchange exchange = how.strategy == Strategy::kZero3
                                ? exchange_of_units(config, gradients, training, network)
                                : exchange_of(config, gradients, training, network);
  StepTime time;
  double backward_s = kBackwardShare * micro_batch_s;
  if (ranks_of_copy(how) > 1)
    backward_s = add_pipeline(time, config, training, cluster, micro_batch_s);
  else
    time.compute_s =
        micro_batch_s * static_cast<double>(micro_batches_of_rank(config.trainer, network.ranks));
  time.sent_bytes += exchange.bytes;
  // On CPU ranks the cores that compute also copy, so that nothing is hidden.
  time.exposed_s += cluster.cuda
                        ? exchange.exposed((1.0 - kBackwardShare) * micro_batch_s, backward_s)
                        : exchange.exposed(0.0, 0.0);
  const double sharers = how.strategy == Strategy::kDdp ? 1.0 : static_cast<double>(network.ranks);
  const bool offload = cluster.cuda && how.offload == Offload::kOptimizer;
  time.update_s = offload ? bus_seconds(gradients / sharers)
                          : update_bytes(whole) / sharers / cluster.memory_bytes_per_s;
  return time;
}

}  // namespace ddp::train
