#include "trainer/model/cost/training_cost.h"

#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "trainer/model/cost/tensor_cost.h"
#include "trainer/model/lora.h"
#include "trainer/model/model_division.h"

namespace ddp::train {
namespace {

constexpr double kFloat = 4.0;

int64_t rounded(double bytes) { return static_cast<int64_t>(std::llround(bytes)); }

/// Numbers of a training's state.
struct StateCounts {
  double all = 0.0;    ///< Parameters that a snapshot holds, frozen ones included.
  double below = 0.0;  ///< The model's, below adapters, but for those that are quantized.
  double quantized_bytes = 0.0;
  double trained = 0.0;
  double largest = 0.0;  ///< Largest trained parameter.
  double states = 0.0;   ///< Optimizer state, in numbers of 4 bytes.
  double averages = 0.0;
};

/// Counts for ZeRO-3, which collects the weights of a unit at a time.
struct UnitCounts {
  double root = 0.0;             ///< Parameters of no unit.
  double largest_of_root = 0.0;  ///< The largest of its trained parameters: an embedding.
  double unit = 0.0;             ///< Parameters of the largest unit.
  double largest_of_unit = 0.0;  ///< The largest trained parameter of any unit.
};

/// "transformer.h.0" of "transformer.h.0.ln_1.weight"; "" for the root.
std::string unit_of(const std::string& parameter) {
  std::size_t begin = 0;
  while (begin < parameter.size()) {
    const std::size_t end = std::min(parameter.find('.', begin), parameter.size());
    const std::string_view part = std::string_view(parameter).substr(begin, end - begin);
    if (!part.empty() && part.find_first_not_of("0123456789") == part.npos)
      return parameter.substr(0, end);
    begin = end + 1;
  }
  return "";
}

/// `parameters`: those of a snapshot, the model's own or its adapters.
UnitCounts unit_counts(const Config& config, const std::vector<ParameterShape>& of_model,
                       const std::vector<ParameterShape>& parameters) {
  UnitCounts counts;
  std::map<std::string, double> units;
  const auto add = [&](const ParameterShape& parameter, bool trained) {
    const std::string unit = unit_of(parameter.name);
    const auto count = static_cast<double>(parameter.count());
    units[unit] += count;
    double& largest = unit.empty() ? counts.largest_of_root : counts.largest_of_unit;
    if (trained) largest = std::max(largest, count);
  };
  const bool adapted = config.adapted();
  for (const auto& group : resolve_param_groups(config, parameters)) {
    for (const std::size_t i : group.members) add(parameters[i], !group.options.frozen);
  }
  for (const ParameterShape& each : of_model) {
    if (adapted && !is_trained_with_adapters(each.name) &&
        quantized_bytes(each, config.quantize.base) == 0)
      add(each, false);
  }
  counts.root = units[""];
  for (const auto& [name, count] : units)
    if (!name.empty()) counts.unit = std::max(counts.unit, count);
  return counts;
}

/// What a rank holds besides its shards at the largest moment of a step.
struct Collected {
  double weights = 0.0;
  double gradients = 0.0;

  double total() const { return weights + gradients; }
};

/// Either the backward pass of a unit: its weights and the next one's, its gradients in a table (on
/// a GPU there are two) and the last one outside of it, while the output layer's gradient waits for
/// the embedding's; or its end: the root's weights, its table, and both gradients of the embedding.
Collected collected(const UnitCounts& n, bool cuda) {
  const Collected in_unit = {
      kFloat * 2 * n.unit,
      kFloat * (n.largest_of_root + n.unit * (cuda ? 2 : 1) + n.largest_of_unit)};
  const Collected at_end = {kFloat * n.root, kFloat * (n.root + 2 * n.largest_of_root)};
  return in_unit.total() > at_end.total() ? in_unit : at_end;
}

StateCounts state_counts(const Config& config, const std::vector<ParameterShape>& of_model,
                         const std::vector<ParameterShape>& parameters) {
  StateCounts counts;
  const bool adapted = config.adapted();
  for (const ParameterShape& each : of_model) {
    if (!adapted || is_trained_with_adapters(each.name)) continue;
    const int64_t bytes = quantized_bytes(each, config.quantize.base);
    counts.quantized_bytes += static_cast<double>(bytes);
    if (bytes == 0) counts.below += static_cast<double>(each.count());
  }
  for (const auto& group : resolve_param_groups(config, parameters)) {
    double of_group = 0.0;
    double states = 0.0;
    for (const std::size_t i : group.members) {
      const auto count = static_cast<double>(parameters[i].count());
      of_group += count;
      states += state_bytes(parameters[i].count(), group.options, config.optimizer) / kFloat;
      if (!group.options.frozen) counts.largest = std::max(counts.largest, count);
    }
    counts.all += of_group;
    if (group.options.frozen) continue;
    counts.trained += of_group;
    counts.states += states;
  }
  if (config.trainer.ema_decay > 0) counts.averages = counts.trained;
  return counts;
}

/// Whether the layers of `place` are among those of a stage.
bool is_in(const ModelPart& part, const WeightPlace& place) {
  if (place.block == WeightPlace::kBeforeBlocks) return part.has_first();
  if (place.block == WeightPlace::kAfterBlocks) return part.has_last();
  return part.has(place.block);
}

/// Bytes of the last stage's copy of a tied table, and of its gradient.
double table_copy_bytes(const Config& config, const WeightsLayout& layout,
                        const ComputePlace& place) {
  if (config.distributed.pipeline == 1 || !shares_table(layout)) return 0.0;
  if (place.stage + 1 < config.distributed.pipeline) return 0.0;
  for (const WeightPlace& weight : layout) {
    if (weight.split != Split::kVocabulary) continue;
    const auto sizes = layout_of(weight, 0, config.distributed.tensor).local_shape();
    return 2 * kFloat * static_cast<double>(ParameterShape{weight.name, sizes, {}}.count());
  }
  return 0.0;
}

/// What a rank of ZeRO-1 or 2 holds of gradients besides its shard at the largest moment of a step,
/// beyond `kept` bytes of activations and `logits`. Full gradients wait until their bucket is
/// packed, or are all there if ZeRO-1 accumulates micro-batches; buckets travel in two tables, the
/// first of which is there from the beginning of the backward pass. The logits are freed by then,
/// and with each bucket the activations that its gradients were computed from.
double unsharded_gradients(const Config& config, const StateCounts& counts, int64_t copies,
                           double kept, double logits) {
  constexpr double kMiB = 1024.0 * 1024.0;
  const double all = kFloat * counts.trained;
  const double bucket = std::min(all, config.distributed.bucket_cap_mb * kMiB);
  const bool accumulates = config.distributed.strategy == Strategy::kZero1 &&
                           micro_batches_of_rank(config.trainer, copies) > 1;
  double most = accumulates ? all : 0.0;
  for (const double full : {0.0, 1.0, 2.0}) {
    const double waiting =
        accumulates ? all : std::min(all, std::min(1.0, full) * bucket + kFloat * counts.largest);
    const double gone = all == 0 ? 0.0 : kept * std::min(1.0, full * bucket / all);
    most = std::max(most, waiting + std::max(1.0, full) * bucket - gone - logits);
  }
  return most;
}

double item_bytes(const std::vector<MemoryItem>& items, std::string_view name) {
  for (const MemoryItem& item : items)
    if (item.name == name) return static_cast<double>(item.bytes);
  return 0.0;
}

/// Whether gradients are there only while a backward pass frees activations, and in updates
/// (ParallelStrategy::makes_gradients(), without DDP's buckets).
bool gradients_follow_activations(const Config& config, const ComputePlace& place) {
  return place.cuda && place.world_size == ranks_of_copy(config.distributed) &&
         micro_batches_of_rank(config.trainer, 1) == 1 && config.distributed.pipeline == 1 &&
         config.distributed.expert == 1 && !config.logging.histogram_every_steps;
}

/// Host memory of OffloadedOptimizer besides the optimizer's state: the weights, and the gradients
/// of two chunks of them, of which each holds at least one parameter.
double offloaded_copies(double trained, double largest) {
  constexpr double kLargestChunk = 64.0 * 1024 * 1024;
  const double chunk =
      std::max(kFloat * std::min(largest, trained), std::min(kLargestChunk, kFloat * trained / 8));
  return kFloat * trained + 2 * chunk;
}

}  // namespace

std::vector<ParameterShape> shapes_of(const WeightsLayout& layout) {
  const auto role_of = [](const WeightPlace& place) {
    if (place.shape.size() < 2) return ParameterRole::kOther;
    if (place.block == WeightPlace::kBeforeBlocks) return ParameterRole::kEmbedding;
    return place.block == WeightPlace::kAfterBlocks ? ParameterRole::kLinear
                                                    : ParameterRole::kHidden;
  };
  std::vector<ParameterShape> shapes;
  for (const WeightPlace& place : layout)
    shapes.push_back({place.name, place.shape, role_of(place)});
  return shapes;
}

std::vector<ParameterPart> parts_of(const WeightsLayout& layout) {
  ParameterPart tokens{"token_embedding"}, positions{"position_embedding"}, blocks{"blocks"},
      norm{"final_norm"}, head{"head"};
  const auto part_of = [&](const WeightPlace& place) -> ParameterPart& {
    if (place.block >= 0) return blocks;
    const bool is_table = place.split == Split::kVocabulary;
    if (place.block == WeightPlace::kAfterBlocks) return is_table ? head : norm;
    return is_table ? tokens : positions;
  };
  for (const WeightPlace& place : layout) part_of(place).count += elements_of({place});
  if (positions.count == 0) return {tokens, blocks, norm, head};
  return {tokens, positions, blocks, norm, head};
}

std::vector<ParameterShape> shapes_of_rank(const std::vector<ParameterShape>& parameters,
                                           const WeightsLayout& layout, const Config& config,
                                           int64_t stage) {
  std::map<std::string, const WeightPlace*> places, units;
  for (const WeightPlace& place : layout) {
    places[place.name] = &place;
    units.emplace(unit_of(place.name), &place);
  }
  const bool cut = config.distributed.pipeline > 1;
  const int64_t own_experts = expert_count(layout) / config.distributed.expert;
  const ModelPart part = cut ? part_of_stage(config, layout, stage) : ModelPart{};
  std::vector<ParameterShape> own;
  for (const ParameterShape& parameter : parameters) {
    const auto found = places.find(parameter.name);
    const bool of_adapter = found == places.end();
    const WeightPlace& place = of_adapter ? *units.at(unit_of(parameter.name)) : *found->second;
    own.push_back(parameter);
    if ((cut && !is_in(part, place)) || place.expert >= own_experts)
      own.back().sizes = {0};
    else if (!of_adapter)
      own.back().sizes = layout_of(place, 0, config.distributed.tensor).local_shape();
  }
  return own;
}

int64_t count_of(const std::vector<ParameterShape>& parameters) {
  return std::accumulate(
      parameters.begin(), parameters.end(), int64_t{0},
      [](int64_t sum, const ParameterShape& shape) { return sum + shape.count(); });
}

int64_t total_of(const std::vector<ParameterPart>& parts) {
  return std::accumulate(parts.begin(), parts.end(), int64_t{0},
                         [](int64_t sum, const ParameterPart& part) { return sum + part.count; });
}

double rows_of_chunk(const LossSizes& s) {
  if (!s.chunk_size.automatic) return s.chunk_size.value;
  return std::max(1.0, std::floor(kAutomaticLogitBytes / (kFloat * s.vocab_size)));
}

bool in_one_piece(const LossSizes& s) {
  return rows_of_chunk(s) == 0 || s.tokens <= rows_of_chunk(s);
}

double logit_bytes(const LossSizes& s) {
  const double chunk = rows_of_chunk(s);
  const bool whole = in_one_piece(s);
  if (whole && !s.divided) {
    // Log-probabilities, their gradient and that of the logits; in lower precision a copy of both.
    const double copies = s.compute < kFloat ? 2 * s.compute : 0;
    const double logits = s.tokens * s.vocab_size;
    return logits * (3 * kFloat + copies) + (s.finished - 1) * logits * kFloat;
  }
  const double copy = s.compute < kFloat ? s.compute : 0;
  const double gradients = s.tokens * s.width * kFloat + s.vocab_size * s.width * kFloat;
  return (whole ? s.tokens : chunk) * s.vocab_size * (kFloat + copy) + s.finished * gradients;
}

void add_layer(std::vector<ParameterShape>& shapes, const std::string& name,
               std::vector<int64_t> sizes, ParameterRole role) {
  const int64_t outputs = sizes.front();
  shapes.push_back({name + ".weight", std::move(sizes), role});
  shapes.push_back({name + ".bias", {outputs}, ParameterRole::kOther});
}

std::vector<MemoryItem> rank_items(const Config& config,
                                   const std::vector<ParameterShape>& parameters,
                                   const ComputePlace& place,
                                   const std::vector<MemoryItem>& of_model) {
  return rank_items(config, parameters, place, {}, of_model);
}

std::vector<MemoryItem> rank_items(const Config& config,
                                   const std::vector<ParameterShape>& parameters,
                                   const ComputePlace& place, const WeightsLayout& layout,
                                   const std::vector<MemoryItem>& of_model) {
  const int64_t experts = config.distributed.expert;  // ranks that share them
  const bool divided = ranks_of_copy(config.distributed) * experts > 1;
  const auto stored = config.adapted() ? adapter_shapes(config, parameters) : parameters;
  const auto own_of = [&](const std::vector<ParameterShape>& shapes) {
    return divided ? shapes_of_rank(shapes, layout, config, place.stage) : shapes;
  };
  const auto own = own_of(parameters), own_stored = own_of(stored);
  const StateCounts whole = state_counts(config, parameters, stored);
  const StateCounts n = divided ? state_counts(config, own, own_stored) : whole;
  const int64_t copies = copies_of_model(config.distributed, place.world_size);
  const bool alone = copies == 1;
  const bool sharded = divides_state(config.distributed.strategy) && !alone;
  const double ranks = sharded ? static_cast<double>(copies) : 1.0;  // that share it
  const bool units = sharded && config.distributed.strategy == Strategy::kZero3;
  const Collected of_units =
      units ? collected(unit_counts(config, own, own_stored), place.cuda) : Collected{};
  // For a snapshot every rank copies its part, or rank 0 everything.
  const AutoSwitch shards = config.trainer.snapshot_shards;
  const bool parts =
      place.world_size > 1 &&
      (shards == AutoSwitch::kTrue || (shards == AutoSwitch::kAuto && (sharded || divided)));
  const bool saves = place.stage == 0;
  const double own_state = kFloat * (n.all + n.states + n.averages) /
                           static_cast<double>(std::max<int64_t>(1, copies / experts));
  const double all_state = kFloat * (whole.all + whole.states + whole.averages);
  const double state = parts ? own_state : saves ? all_state : 0.0;
  const bool own_buckets = !sharded && !alone && !config.distributed.gradient_as_bucket_view;
  double in_buckets = of_units.gradients;
  if (sharded && !units) {
    in_buckets = unsharded_gradients(config, n, copies, item_bytes(of_model, "activations"),
                                     item_bytes(of_model, "logits"));
  }
  const double gradients = kFloat * n.trained / ranks;
  const double of_passes = item_bytes(of_model, "activations") + item_bytes(of_model, "logits");
  const double reused =
      gradients_follow_activations(config, place) ? std::min(gradients, of_passes) : 0.0;
  const bool offload = place.cuda && config.distributed.offload == Offload::kOptimizer;
  const MemoryKind updated = offload ? MemoryKind::kHost : MemoryKind::kDevice;
  const double copies_of_weights = offload ? offloaded_copies(n.trained / ranks, n.largest) : 0;
  std::vector<MemoryItem> items = {
      {"weights", rounded(kFloat * (n.all + n.below) / (units ? ranks : 1.0) + n.quantized_bytes)},
      {"collected_weights", rounded(of_units.weights)},
      {"gradients", rounded(gradients), MemoryKind::kDevice, false, rounded(reused)},
      {"optimizer", rounded(kFloat * n.states / ranks), updated},
      {"averaged_weights", rounded(kFloat * n.averages / ranks), updated},
      {"offloaded_weights", rounded(copies_of_weights), MemoryKind::kHost},
      {"table_copy", rounded(table_copy_bytes(config, layout, place))}};
  items.insert(items.end(), of_model.begin(), of_model.end());
  const std::vector<MemoryItem> around = {
      {"ddp_buckets", own_buckets ? rounded(kFloat * n.trained) : 0},
      {"gradient_buckets", rounded(in_buckets)},
      {"snapshot_copy", rounded(state), MemoryKind::kHost, !parts},
      {"ram_snapshots", config.trainer.ram_snapshots ? rounded(3 * state) : 0, MemoryKind::kShared,
       !parts}};
  items.insert(items.end(), around.begin(), around.end());
  std::erase_if(items, [](const MemoryItem& item) { return item.bytes == 0; });
  return items;
}

}  // namespace ddp::train
