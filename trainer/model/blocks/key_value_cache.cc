#include "trainer/model/blocks/key_value_cache.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

namespace ddp::train {
namespace {

torch::Tensor slots(int64_t first, int64_t end, torch::Device device) {
  return torch::arange(first, end, torch::TensorOptions(torch::kInt64).device(device));
}

}  // namespace

KeyValueCache::KeyValueCache(int64_t n_layer, int64_t capacity_, torch::Tensor padding)
    : capacity(capacity_),
      padding_B(std::move(padding)),
      layers(static_cast<std::size_t>(n_layer)) {}

/// Doubled as the text grows: a model's context may be far longer than what is said.
void KeyValueCache::make_room(int64_t count) {
  constexpr int64_t kLeast = 64, kLeastByDevice = 256;
  constexpr int64_t kMaskAlignment = 8;  // attention would copy other masks to pad them
  if (length + count <= room) return;
  const int64_t least = length_1.defined() ? kLeastByDevice : kLeast;
  const auto wanted = static_cast<uint64_t>(std::max(length + count, least));
  const int64_t most = length_1.defined()
                           ? (capacity + kMaskAlignment - 1) / kMaskAlignment * kMaskAlignment
                           : capacity;
  room = std::min(most, static_cast<int64_t>(std::bit_ceil(wanted)));
}

void KeyValueCache::advance(int64_t count) {
  length += count;
  if (length_1.defined()) length_1.add_(count);
}

void KeyValueCache::shorten(int64_t to) {
  length = to;
  if (length_1.defined()) length_1.fill_(to);
}

torch::Tensor KeyValueCache::positions(int64_t count, torch::Device device) const {
  auto slots_T = by_device(count) ? length_1 : slots(length, length + count, device);
  if (!padding_B.defined()) return slots_T;
  return (slots_T.unsqueeze(0) - padding_B.unsqueeze(1)).clamp_min(0);
}

torch::Tensor KeyValueCache::mask(int64_t count, torch::Device device, int64_t window) const {
  if (by_device(count)) {
    const auto keys_S = slots(0, room, length_1.device());
    auto hidden = keys_S > length_1;
    if (window > 0) hidden = hidden | (keys_S <= length_1 - window);
    if (padding_B.defined()) hidden = hidden | (keys_S < padding_B.unsqueeze(1));
    return torch::zeros(hidden.sizes(), length_1.options().dtype(torch::kFloat32))
        .masked_fill_(hidden, -std::numeric_limits<double>::infinity())
        .view({-1, 1, 1, room});
  }
  const bool several_more = length > 0 && count > 1;
  const bool hides = window > 0 && length + count > window;
  if (!padding_B.defined() && !several_more && !hides) return {};
  const auto queries_T1 = slots(length, length + count, device).unsqueeze(1);
  const auto keys_1S = slots(0, length + count, device).unsqueeze(0);
  auto visible_TS = keys_1S <= queries_T1;
  if (hides) visible_TS = visible_TS & (keys_1S > queries_T1 - window);
  if (!padding_B.defined()) return visible_TS.unsqueeze(0).unsqueeze(0);
  const auto written_BTS = keys_1S.unsqueeze(0) >= padding_B.view({-1, 1, 1});
  // Padding sees itself: a row without any key would be NaN.
  return ((written_BTS & visible_TS) | (keys_1S == queries_T1)).unsqueeze(1);
}

torch::Tensor KeyValueCache::add(torch::Tensor& kept_BHTD, const torch::Tensor& new_BHTD) const {
  const int64_t T = new_BHTD.size(2);
  if (!kept_BHTD.defined() || kept_BHTD.size(2) < room) {
    auto shape = new_BHTD.sizes().vec();
    shape[2] = room;
    // Behind a mask values count 0 times, which of a NaN is none.
    const auto larger_BHTD = length_1.defined() ? torch::zeros(shape, new_BHTD.options())
                                                : torch::empty(shape, new_BHTD.options());
    if (length > 0) larger_BHTD.narrow(2, 0, length).copy_(kept_BHTD.narrow(2, 0, length));
    kept_BHTD = larger_BHTD;
  }
  if (by_device(T)) return kept_BHTD.index_copy_(2, length_1, new_BHTD);
  kept_BHTD.narrow(2, length, T).copy_(new_BHTD);
  return kept_BHTD.narrow(2, 0, length + T);
}

}  // namespace ddp::train
