// 8-bit dynamic quantization in blocks (T. Dettmers et al., "8-bit optimizers via block-wise
// quantization", 2021): the numbers of a block are divided by the largest magnitude among them and
// rounded to the nearest of 256 values.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ddp::train {

/// Blocks whose largest magnitude is below are divided by this instead, as in bitsandbytes.
inline constexpr float kLeastAbsmax = 1e-38F;

class DynamicMap {
 public:
  enum class Sign { kAny, kNotNegative };
  explicit DynamicMap(Sign sign);

  /// The maps for numbers of any sign and for those that are not negative.
  static const DynamicMap& signed_map();
  static const DynamicMap& unsigned_map();

  /// Ascending, -1 to 1 or 0 to 1: those of bitsandbytes' create_dynamic_map(), bit for bit.
  const std::array<float, 256>& values() const { return values_; }
  /// The means of neighbours; a number that is one of them is rounded down.
  std::span<const float> bounds() const { return {bounds_.data(), bounds_.size() - 1}; }
  /// Returns the index of the value that is nearest to `x`.
  uint8_t nearest(float x) const {
    const std::size_t index = first_[std::bit_cast<uint32_t>(x) >> kShift];
    return static_cast<uint8_t>(index + (x > bounds_[index] ? 1 : 0));
  }

 private:
  /// The bits of a float that first_ is indexed by: sign, exponent, the first 7 of the fraction.
  /// No two bounds share them, so that nearest() makes one comparison.
  static constexpr unsigned kShift = 16;

  std::array<float, 256> values_{};
  std::array<float, 256> bounds_{};  ///< And infinity.
  std::array<uint8_t, std::size_t{1} << (32 - kShift)>
      first_{};  ///< The lowest index for such bits.
};

/// Codes of `count` numbers, a block; returns their largest magnitude.
float quantize_block(const DynamicMap& map, const float* numbers, int64_t count, uint8_t* codes);

}  // namespace ddp::train
