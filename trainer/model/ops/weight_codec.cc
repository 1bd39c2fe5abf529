#include "trainer/model/ops/weight_codec.h"

#include <algorithm>
#include <cmath>

#include "trainer/runtime/dynamic_map.h"

namespace ddp::train {
namespace {

using Nf4Codes = std::array<int32_t, kNf4Block>;

/// NaN gets the last code, as from torch.bucketize().
Nf4Codes nearest_nf4(const float* numbers, float scale) {
  Nf4Codes codes{};
  for (std::size_t k = 0; k + 1 < kNf4Values.size(); ++k) {
    const float bound = (kNf4Values[k] + kNf4Values[k + 1]) / 2;
    for (int64_t i = 0; i < kNf4Block; ++i) codes[i] += numbers[i] * scale <= bound ? 0 : 1;
  }
  return codes;
}

float largest_magnitude(const float* values, int64_t count) {
  float largest = 0.0F;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(values[i]));
  return largest;
}

/// bitsandbytes' rounding on a CPU: to the value that is nearest to the nearest of 65,536 steps.
/// What is not a number becomes -1.
class SteppedMap {
 public:
  SteppedMap() {
    for (std::size_t i = 0; i < codes_.size(); ++i)
      codes_[i] = DynamicMap::signed_map().nearest(static_cast<float>(i) / kLast * 2 - 1);
  }
  uint8_t code(float x) const {
    const float bounded = x > -1.0F ? std::min(x, 1.0F) : -1.0F;
    return codes_[static_cast<std::size_t>((bounded + 1.0F) * 0.5F * kLast + 0.5F)];
  }

 private:
  static constexpr float kLast = 65535.0F;
  std::array<uint8_t, 65536> codes_{};
};

}  // namespace

void quantize_nf4(const float* values, int64_t blocks, uint8_t* codes, float* absmax) {
  for (int64_t block = 0; block < blocks; ++block) {
    const float* const numbers = values + block * kNf4Block;
    absmax[block] = largest_magnitude(numbers, kNf4Block);
    const Nf4Codes nearest = nearest_nf4(numbers, 1.0F / std::max(absmax[block], kLeastAbsmax));
    for (int64_t i = 0; i < kNf4Block; i += 2)
      codes[(block * kNf4Block + i) / 2] = static_cast<uint8_t>(nearest[i] * 16 + nearest[i + 1]);
  }
}

void quantize_absmax(const float* values, int64_t count, float mean, uint8_t* codes,
                     float* absmax) {
  static const SteppedMap map;
  for (int64_t begin = 0; begin < count; begin += kAbsmaxBlock) {
    const int64_t end = std::min(count, begin + kAbsmaxBlock);
    float& largest = absmax[begin / kAbsmaxBlock];
    largest = 0.0F;
    for (int64_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(values[i] - mean));
    const float scale = 1.0F / largest;
    for (int64_t i = begin; i < end; ++i) codes[i] = map.code((values[i] - mean) * scale);
  }
}

void dequantize_absmax(const uint8_t* codes, const float* absmax, float mean, int64_t first,
                       int64_t last, float* values) {
  const auto& map = DynamicMap::signed_map().values();
  for (int64_t i = first; i < last; ++i)
    values[i - first] = map[codes[i]] * absmax[i / kAbsmaxBlock] + mean;
}

void quantize_int8(const float* values, int64_t rows, int64_t columns, int8_t* codes,
                   float* absmax) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* const numbers = values + row * columns;
    absmax[row] = largest_magnitude(numbers, columns);
    const float scale = 1.0F / absmax[row] * 127.0F;  // as torch divides a number by a tensor
    for (int64_t i = 0; i < columns; ++i) {
      codes[row * columns + i] =
          static_cast<int8_t>(std::isfinite(scale) ? std::nearbyint(numbers[i] * scale) : 0.0F);
    }
  }
}

}  // namespace ddp::train
