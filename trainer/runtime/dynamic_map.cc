#include "trainer/runtime/dynamic_map.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace ddp::train {
namespace {

/// The boundaries of `items` equal parts of [0.1, 1], as torch.linspace() rounds them.
std::vector<float> boundaries(int items) {
  constexpr float kFirst = 0.1F;
  const float step = (1.0F - kFirst) / static_cast<float>(items);
  std::vector<float> result;
  for (int i = 0; i <= items; ++i) {
    const bool from_first = i < (items + 1) / 2;
    result.push_back(
        std::fma(step, static_cast<float>(from_first ? i : i - items), from_first ? kFirst : 1.0F));
  }
  return result;
}

/// The bits of numbers that are not negative are in the order of the numbers.
float largest_magnitude(const float* numbers, int64_t count) {
  int32_t largest = 0;
  for (int64_t i = 0; i < count; ++i)
    largest =
        std::max(largest, std::bit_cast<int32_t>(numbers[i]) & std::numeric_limits<int32_t>::max());
  return std::bit_cast<float>(largest);
}

}  // namespace

DynamicMap::DynamicMap(Sign sign) {
  constexpr int kDecades = 7;
  std::vector<float> values = {0.0F, 1.0F};
  for (int i = 0; i < kDecades; ++i) {
    const auto size = static_cast<float>(std::pow(10.0, i + 1 - kDecades));
    const auto ends = boundaries((sign == Sign::kAny ? 1 : 2) << i);
    for (std::size_t k = 0; k + 1 < ends.size(); ++k) {
      const float value = size * ((ends[k] + ends[k + 1]) / 2.0F);
      values.push_back(value);
      if (sign == Sign::kAny) values.push_back(-value);
    }
  }
  std::sort(values.begin(), values.end());
  std::copy(values.begin(), values.end(), values_.begin());
  bounds_.fill(std::numeric_limits<float>::infinity());
  for (std::size_t i = 0; i + 1 < values_.size(); ++i)
    bounds_[i] = (values_[i] + values_[i + 1]) / 2;
  for (std::size_t i = 0; i < first_.size(); ++i) {
    const auto bits = static_cast<uint32_t>(i << kShift);
    const bool negative = std::bit_cast<float>(bits) < 0.0F;
    const auto least = std::bit_cast<float>(negative ? bits | ((1U << kShift) - 1) : bits);
    first_[i] = static_cast<uint8_t>(std::lower_bound(bounds().begin(), bounds().end(), least) -
                                     bounds().begin());
  }
}

const DynamicMap& DynamicMap::signed_map() {
  static const DynamicMap map(Sign::kAny);
  return map;
}

const DynamicMap& DynamicMap::unsigned_map() {
  static const DynamicMap map(Sign::kNotNegative);
  return map;
}

float quantize_block(const DynamicMap& map, const float* numbers, int64_t count, uint8_t* codes) {
  const float absmax = largest_magnitude(numbers, count);
  const float scale = 1.0F / std::max(absmax, kLeastAbsmax);
  for (int64_t i = 0; i < count; ++i) codes[i] = map.nearest(numbers[i] * scale);
  return absmax;
}

}  // namespace ddp::train
