#include "trainer/model/blocks/key_value_cache.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace ddp::train {
namespace {

torch::Tensor slots(int64_t first, int64_t end, torch::Device device) {
  return torch::arange(first, end, torch::TensorOptions(torch::kInt64).device(device));
}

/// Doubled as the text grows: a model's context may be far longer than what is said.
int64_t room_for(int64_t positions, int64_t capacity) {
  constexpr int64_t kLeast = 64;
  const auto doubled = std::bit_ceil(static_cast<uint64_t>(std::max(positions, kLeast)));
  return std::min(capacity, static_cast<int64_t>(doubled));
}

}  // namespace

KeyValueCache::KeyValueCache(int64_t n_layer, int64_t capacity_, torch::Tensor padding)
    : capacity(capacity_),
      padding_B(std::move(padding)),
      layers(static_cast<std::size_t>(n_layer)) {}

torch::Tensor KeyValueCache::positions(int64_t count, torch::Device device) const {
  auto slots_T = slots(length, length + count, device);
  if (!padding_B.defined()) return slots_T;
  return (slots_T.unsqueeze(0) - padding_B.unsqueeze(1)).clamp_min(0);
}

torch::Tensor KeyValueCache::mask(int64_t count) const {
  const bool several_more = length > 0 && count > 1;
  if (!padding_B.defined() && !several_more) return {};
  const auto device = padding_B.defined() ? padding_B.device() : layers.front().keys_BHTD.device();
  const auto queries_T1 = slots(length, length + count, device).unsqueeze(1);
  const auto keys_1S = slots(0, length + count, device).unsqueeze(0);
  if (!padding_B.defined()) return (keys_1S <= queries_T1).unsqueeze(0).unsqueeze(0);
  const auto written_BTS = keys_1S.unsqueeze(0) >= padding_B.view({-1, 1, 1});
  // Padding sees itself: a row without any key would be NaN.
  return ((written_BTS & (keys_1S <= queries_T1)) | (keys_1S == queries_T1)).unsqueeze(1);
}

torch::Tensor add_to_cache(torch::Tensor& kept_BHTD, const torch::Tensor& new_BHTD, int64_t start,
                           int64_t capacity) {
  const int64_t T = new_BHTD.size(2);
  if (!kept_BHTD.defined() || kept_BHTD.size(2) < start + T) {
    auto shape = new_BHTD.sizes().vec();
    shape[2] = room_for(start + T, capacity);
    const auto larger_BHTD = torch::empty(shape, new_BHTD.options());
    if (start > 0) larger_BHTD.narrow(2, 0, start).copy_(kept_BHTD.narrow(2, 0, start));
    kept_BHTD = larger_BHTD;
  }
  kept_BHTD.narrow(2, start, T).copy_(new_BHTD);
  return kept_BHTD.narrow(2, 0, start + T);
}

}  // namespace ddp::train
