#include "trainer/model/training_cost.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ddp::train {
namespace {

constexpr double kFloat = 4.0;
constexpr int64_t kAutomaticLogitBytes = int64_t{256} << 20U;

/// Numbers that the optimizer keeps of all parameters together.
double optimizer_numbers(const OptimizerConfig& optimizer, double parameters, double hidden) {
  const AutoNumber& momentum = optimizer.momentum;
  switch (optimizer.name) {
    case OptimizerName::kAdamW:
    case OptimizerName::kAdam:
      return 2 * parameters;
    case OptimizerName::kSgd:
      return !momentum.automatic && momentum.value > 0 ? parameters : 0;
    case OptimizerName::kMuon:
      return hidden + 2 * (parameters - hidden);
  }
  return 0;
}

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

std::vector<MemoryItem> state_items(const Config& config, double parameters, double hidden,
                                    const ComputePlace& place) {
  const double optimizer = kFloat * optimizer_numbers(config.optimizer, parameters, hidden);
  const double averages = config.trainer.ema_decay > 0 ? kFloat * parameters : 0.0;
  const double state = kFloat * parameters + optimizer + averages;  // as a snapshot has it
  const bool own_buckets = place.world_size > 1 && !config.distributed.gradient_as_bucket_view;
  return {{"weights", rounded(kFloat * parameters)},
          {"gradients", rounded(kFloat * parameters)},
          {"optimizer", rounded(optimizer)},
          {"averaged_weights", rounded(averages)},
          {"ddp_buckets", own_buckets ? rounded(kFloat * parameters) : 0},
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
