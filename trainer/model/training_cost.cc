#include "trainer/model/training_cost.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace ddp::train {
namespace {

constexpr double kFloat = 4.0;
constexpr int64_t kAutomaticLogitBytes = int64_t{256} << 20U;

int64_t rounded(double bytes) { return static_cast<int64_t>(std::llround(bytes)); }

}  // namespace

int64_t total_of(const std::vector<ParameterPart>& parts) {
  return std::accumulate(parts.begin(), parts.end(), int64_t{0},
                         [](int64_t sum, const ParameterPart& part) { return sum + part.count; });
}

double logit_bytes(const LossSizes& s) {
  const double chunk = s.chunk_size.automatic
                           ? std::max(1.0, std::floor(static_cast<double>(kAutomaticLogitBytes) /
                                                      (kFloat * s.vocab_size)))
                           : s.chunk_size.value;
  if (chunk == 0 || s.tokens <= chunk) {
    // Log-probabilities, their gradient and that of the logits; in lower precision a copy of both.
    const double copies = s.compute < kFloat ? 2 * s.compute : 0;
    return s.tokens * s.vocab_size * (3 * kFloat + copies);
  }
  const double copy = s.compute < kFloat ? s.compute : 0;
  const double gradients = s.tokens * s.width * kFloat + s.vocab_size * s.width * kFloat;
  return chunk * s.vocab_size * (kFloat + copy) + gradients;
}

void add_layer(std::vector<ParameterShape>& shapes, const std::string& name,
               std::vector<int64_t> sizes, ParameterRole role) {
  const int64_t outputs = sizes.front();
  shapes.push_back({name + ".weight", std::move(sizes), role});
  shapes.push_back({name + ".bias", {outputs}, ParameterRole::kOther});
}

std::vector<MemoryItem> state_items(const Config& config,
                                    const std::vector<ParameterShape>& parameters,
                                    const ComputePlace& place) {
  double all = 0.0, trained = 0.0, states = 0.0;  // numbers
  for (const auto& group : resolve_param_groups(config, parameters)) {
    double count = 0.0;
    for (const std::size_t i : group.members) count += static_cast<double>(parameters[i].count());
    all += count;
    if (group.options.frozen) continue;
    trained += count;
    states += count * states_of(group.options, config.optimizer);
  }
  const double averages = config.trainer.ema_decay > 0 ? trained : 0.0;
  const double state = kFloat * (all + states + averages);  // as a snapshot has it
  const bool own_buckets = place.world_size > 1 && !config.distributed.gradient_as_bucket_view;
  return {{"weights", rounded(kFloat * all)},
          {"gradients", rounded(kFloat * trained)},
          {"optimizer", rounded(kFloat * states)},
          {"averaged_weights", rounded(kFloat * averages)},
          {"ddp_buckets", own_buckets ? rounded(kFloat * trained) : 0},
          {"snapshot_copy", rounded(state), MemoryKind::kHost, true},
          {"ram_snapshots", config.trainer.ram_snapshots ? rounded(3 * state) : 0,
           MemoryKind::kShared, true}};
}

std::vector<MemoryItem> with_items(std::vector<MemoryItem> items, std::vector<MemoryItem> more) {
  const auto behind = std::find_if(items.begin(), items.end(), [](const MemoryItem& item) {
    return item.name == "ddp_buckets";
  });
  items.insert(behind, more.begin(), more.end());
  std::erase_if(items, [](const MemoryItem& item) { return item.bytes == 0; });
  return items;
}

}  // namespace ddp::train
