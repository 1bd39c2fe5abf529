#include "trainer/app/plan/step_time.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "trainer/model/model_division.h"

namespace ddp::train {
namespace {

constexpr double kBackwardShare = 2.0 / 3.0;

double bytes_of(const std::vector<MemoryItem>& items, std::string_view name) {
  for (const MemoryItem& item : items)
    if (item.name == name) return static_cast<double>(item.bytes);
  return 0.0;
}

/// Seconds that the passes of one micro-batch take on a rank: collectives overlap with them.
struct Passes {
  double forward_s = 0.0;
  double backward_s = 0.0;
};

Passes passes_of(double micro_batch_s) {
  return {(1.0 - kBackwardShare) * micro_batch_s, kBackwardShare * micro_batch_s};
}

/// The collectives of a step, between copies of the model.
struct Exchange {
  double exposed_s = 0.0;  ///< That no pass hides.
  double bytes = 0.0;      ///< Sent by each rank.
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

/// The last bucket starts when the backward pass is over; weights are sent before the next forward
/// pass or, those of blocks, below it.
Exchange exchange_of(const Config& config, double weight_bytes, const PlannedTraining& training,
                     const Network& network, const Passes& hiding) {
  const DistributedConfig& how = config.distributed;
  const bool halved = how.gradient_compression != GradientCompression::kNone;
  const double gradients = weight_bytes * (halved ? 0.5 : 1.0);
  const double halves = how.strategy == Strategy::kDdp ? 2.0 : 1.0;  // an all-reduce has two
  const double buckets = buckets_of(how, training.matrices, weight_bytes);
  const double bucket_s = halves * all_gather_seconds(network, gradients / buckets);
  const double sent = halves * all_gather_bytes(network.ranks, gradients);
  const double reduced = std::max(bucket_s, buckets * bucket_s - hiding.backward_s);
  if (how.strategy == Strategy::kDdp) return {reduced, sent};
  const double passes =
      how.strategy == Strategy::kZero2
          ? static_cast<double>(micro_batches_of_rank(config.trainer, network.ranks))
          : 1.0;
  const double gather = buckets * all_gather_seconds(network, weight_bytes / buckets);
  const bool unit_by_unit = how.pipeline == 1 && training.units > 0;
  const double before =
      unit_by_unit ? std::min(1.0, root_bytes(config, training) / weight_bytes) : 1.0;
  const double below = std::max(0.0, (1.0 - before) * gather - hiding.forward_s);
  return {passes * reduced + before * gather + below,
          passes * sent + all_gather_bytes(network.ranks, weight_bytes)};
}

/// ZeRO-3: weights are collected unit by unit for each forward pass and once more for the backward
/// pass, in which gradients are reduced.
Exchange exchange_of_units(const Config& config, double weight_bytes,
                           const PlannedTraining& training, const Network& network,
                           const Passes& hiding) {
  const auto units = static_cast<double>(std::max<int64_t>(1, training.units));
  const double root = root_bytes(config, training);
  const double root_s = all_gather_seconds(network, root);
  const double unit_s = all_gather_seconds(network, (weight_bytes - root) / units);
  const double all_s = root_s + units * unit_s;
  const double alone_s = root_s + unit_s;  // when no pass runs
  const auto passes = static_cast<double>(micro_batches_of_rank(config.trainer, network.ranks));
  return {passes * (std::max(alone_s, 2 * all_s - hiding.backward_s) +
                    std::max(alone_s, all_s - hiding.forward_s)),
          passes * all_gather_bytes(network.ranks, 3 * weight_bytes)};
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

/// A micro-batch's hidden state, the rank's rows of it.
double hidden_bytes(const Config& config, const WeightsLayout& layout, double bytes_of_number) {
  double width = 0.0;
  for (const WeightPlace& place : layout)
    if (place.split == Split::kVocabulary) width = static_cast<double>(place.shape[1]);
  return bytes_of_number * width *
         static_cast<double>(config.trainer.batch_size * config.data.block_size);
}

/// Seconds and bytes that ranks which share layers exchange for one micro-batch.
struct LayerExchange {
  double layer_s = 0.0;
  double end_s = 0.0;  ///< For the embedding, and for the output layer.
  double bytes = 0.0;  ///< For all layers and these two.
};

/// Two sums forward, two backward; with recomputation the first two again. With sequence_parallel
/// each is a reduce-scatter and an all-gather.
LayerExchange layer_exchange(const Config& config, const PlannedTraining& training,
                             const StageCosts& costs, const Network& all) {
  const int64_t ranks = config.distributed.tensor;
  if (ranks == 1) return {};
  const double row = hidden_bytes(config, training.layout, config.trainer.use_amp ? 2.0 : 4.0);
  const double sum_s = 2 * all_gather_seconds(network_of_layer(all, ranks), row);
  const double sums = training.recomputes ? 6.0 : 4.0;
  return {sums * sum_s, sum_s,
          (sums * static_cast<double>(costs.layers) + 2) * 2 * all_gather_bytes(ranks, row)};
}

/// Seconds that the stages of each rank take for one micro-batch, with what they exchange.
std::vector<double> rank_seconds(const DistributedConfig& how, const StageCosts& costs,
                                 const LayerExchange& layers, double micro_batch_s) {
  const double all = static_cast<double>(costs.layers) * costs.layer + costs.head;
  std::vector<double> ranks(static_cast<std::size_t>(how.pipeline), 0.0);
  std::size_t stage = 0;
  for (const LayerRange& range :
       cut_into_stages(costs, static_cast<int>(how.pipeline * how.pipeline_chunks))) {
    const auto blocks = static_cast<double>(range.end - range.begin);
    const bool first = range.begin == 0;
    const bool last = range.end == costs.layers;
    ranks[stage++ % ranks.size()] +=
        micro_batch_s * (blocks * costs.layer + (last ? costs.head : 0.0)) / all +
        blocks * layers.layer_s + (first ? layers.end_s : 0.0) + (last ? layers.end_s : 0.0);
  }
  return ranks;
}

/// From one stage to the next.
double message_seconds(const Config& config, const Network& network, double bytes) {
  const bool far = network.nodes > 1 && ranks_of_copy(config.distributed) > network.ranks_of_node();
  const Link& link = far ? network.between : network.inside;
  return link.latency_s + bytes / link.bytes_per_s;
}

/// Seconds for gradients to reach host memory and weights to return, while the host updates what
/// has arrived; assumes a PCIe 4.0 bus.
double bus_seconds(double gradient_bytes) {
  constexpr double kBusBytesPerSecond = 25e9;
  return 2 * gradient_bytes / kBusBytesPerSecond;
}

/// Seconds for which the slowest rank waits, if the stages of each rank take `ranks` for a
/// micro-batch: until the first one has reached it and after the last one has left it, and, unless
/// all passes forward come first, for messages that those in flight do not cover.
double bubble_seconds(const DistributedConfig& how, const std::vector<double>& ranks,
                      double micro_batches, double message_s) {
  const auto count = static_cast<double>(ranks.size());
  const auto chunks = static_cast<double>(how.pipeline_chunks);
  const double most = *std::max_element(ranks.begin(), ranks.end());
  const double sum = std::accumulate(ranks.begin(), ranks.end(), 0.0);
  const double at_the_ends = (sum - most) / chunks + 2 * (count - 1) * chunks * message_s;
  if (how.pipeline_schedule == PipelineSchedule::kGpipe) return at_the_ends;
  const double in_flight = how.pipeline_chunks == 1 ? count : 2 * count - 1 / chunks;
  const double period = (sum + 2 * (count * chunks - 1) * message_s) / in_flight;
  return at_the_ends + std::max(0.0, micro_batches - count / 2) * std::max(0.0, period - most);
}

/// The passes of all micro-batches; adds to `time`. Returns the passes that the exchange of
/// gradients overlaps with: with several chunks gradients are complete after the last one.
Passes add_divided_passes(StepTime& time, const Config& config, const PlannedTraining& training,
                          const Cluster& cluster, double micro_batch_s) {
  const DistributedConfig& how = config.distributed;
  const StageCosts costs = stage_costs(training.layout, config.data.block_size);
  const LayerExchange layers = layer_exchange(config, training, costs, cluster.network);
  const auto ranks = rank_seconds(how, costs, layers, micro_batch_s);
  const auto passes = static_cast<double>(
      micro_batches_of_rank(config.trainer, copies_of_model(how, cluster.network.ranks)));
  const auto stages = static_cast<double>(how.pipeline);
  const double most = *std::max_element(ranks.begin(), ranks.end());
  const double shared = how.sequence_parallel ? static_cast<double>(how.tensor) : 1.0;
  const double message = hidden_bytes(config, training.layout, sizeof(float)) / shared;
  const double exchanged =
      (static_cast<double>(costs.layers) * layers.layer_s + 2 * layers.end_s) / stages;
  time.exposed_s = passes * std::min(most, exchanged);
  time.compute_s = passes * most - time.exposed_s;
  time.sent_bytes = passes * layers.bytes / stages;
  if (how.pipeline > 1) {
    time.bubble_s =
        bubble_seconds(how, ranks, passes, message_seconds(config, cluster.network, message));
    const double busy = passes * std::accumulate(ranks.begin(), ranks.end(), 0.0) / stages;
    time.idle_share = 1.0 - busy / (passes * most + time.bubble_s);
    time.sent_bytes += 2 * passes * message * static_cast<double>(how.pipeline_chunks);
  }
  return how.pipeline_chunks == 1 ? passes_of(ranks.front()) : Passes{};
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
  StepTime time;
  Passes hiding = passes_of(micro_batch_s);
  if (ranks_of_copy(how) > 1)
    hiding = add_divided_passes(time, config, training, cluster, micro_batch_s);
  else
    time.compute_s =
        micro_batch_s * static_cast<double>(micro_batches_of_rank(config.trainer, network.ranks));
  if (!cluster.cuda) hiding = {};  // the cores that compute also copy
  const Exchange exchange = how.strategy == Strategy::kZero3
                                ? exchange_of_units(config, gradients, training, network, hiding)
                                : exchange_of(config, gradients, training, network, hiding);
  time.sent_bytes += exchange.bytes;
  time.exposed_s += exchange.exposed_s;
  const double sharers = how.strategy == Strategy::kDdp ? 1.0 : static_cast<double>(network.ranks);
  const bool offload = cluster.cuda && how.offload == Offload::kOptimizer;
  time.update_s = offload ? bus_seconds(gradients / sharers)
                          : update_bytes(whole) / sharers / cluster.memory_bytes_per_s;
  return time;
}

}  // namespace ddp::train
