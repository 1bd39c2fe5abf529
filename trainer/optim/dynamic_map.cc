#include "trainer/optim/dynamic_map.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "trainer/config/param_groups.h"

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

using Block = std::array<float, kStateBlock>;

/// The bits of numbers that are not negative are in the order of the numbers.
float largest_magnitude(const Block& numbers) {
  int32_t largest = 0;
  for (const float number : numbers)
    largest =
        std::max(largest, std::bit_cast<int32_t>(number) & std::numeric_limits<int32_t>::max());
  return std::bit_cast<float>(largest);
}

void dequantize(const DynamicMap& map, const uint8_t* codes, int64_t count, float absmax,
                Block& numbers) {
  for (int64_t i = 0; i < count; ++i) numbers[i] = map.values()[codes[i]] * absmax;
}

/// Returns the block's scale.
float quantize(const DynamicMap& map, const Block& numbers, int64_t count, uint8_t* codes) {
  const float absmax = largest_magnitude(numbers);
  const float scale = 1.0F / std::max(absmax, kLeastAbsmax);
  for (int64_t i = 0; i < count; ++i) codes[i] = map.nearest(numbers[i] * scale);
  return absmax;
}

void update(float* weights, const float* gradients, int64_t count, const AdamFactors& f,
            Block& average, Block& square) {
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = gradients[i] + f.decay * weights[i];
    average[i] = average[i] * f.beta1 + gradient * f.rest1;
    square[i] = square[i] * f.beta2 + gradient * gradient * f.rest2;
    const float step = average[i] / (std::sqrt(square[i]) / f.square_root + f.epsilon);
    weights[i] = weights[i] * f.shrink - step * f.step_size;
  }
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

const DynamicMap& DynamicMap::of_averages() {
  static const DynamicMap map(Sign::kAny);
  return map;
}

const DynamicMap& DynamicMap::of_squares() {
  static const DynamicMap map(Sign::kNotNegative);
  return map;
}

void update_blocks(const AdamBlocks& blocks, const AdamFactors& factors, int64_t first,
                   int64_t last) {
  const DynamicMap& averages = DynamicMap::of_averages();
  const DynamicMap& squares = DynamicMap::of_squares();
  for (int64_t block = first; block < last; ++block) {
    const int64_t begin = block * kStateBlock;
    const int64_t count = std::min(kStateBlock, blocks.size - begin);
    uint8_t* const exp_avg = blocks.exp_avg + begin;
    uint8_t* const exp_avg_sq = blocks.exp_avg_sq + begin;
    float& absmax = blocks.exp_avg_absmax[block];
    float& absmax_sq = blocks.exp_avg_sq_absmax[block];
    Block average{};
    Block square{};
    dequantize(averages, exp_avg, count, absmax, average);
    dequantize(squares, exp_avg_sq, count, absmax_sq, square);
    update(blocks.weights + begin, blocks.gradients + begin, count, factors, average, square);
    absmax = quantize(averages, average, count, exp_avg);
    absmax_sq = quantize(squares, square, count, exp_avg_sq);
    for (int64_t i = 0; i < count; ++i) exp_avg_sq[i] += exp_avg_sq[i] == 0 && square[i] > 0.0F;
  }
}

}  // namespace ddp::train
