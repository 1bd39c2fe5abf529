// 8-bit dynamic quantization in blocks (T. Dettmers et al., "8-bit optimizers via block-wise
// quantization", 2021): the numbers of a block are divided by the largest magnitude among them and
// rounded to the nearest of 256 values. No LibTorch.
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

  /// The maps for averages of gradients and for averages of their squares.
  static const DynamicMap& of_averages();
  static const DynamicMap& of_squares();

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

/// One parameter, or a shard of one that begins with a block, and Adam's averages of it.
struct AdamBlocks {
  float* weights;
  const float* gradients;
  uint8_t* exp_avg;
  float* exp_avg_absmax;  ///< One for each block.
  uint8_t* exp_avg_sq;
  float* exp_avg_sq_absmax;
  int64_t size;  ///< Elements; the last block may be shorter.
};

/// Adam's numbers in one step.
struct AdamFactors {
  float beta1, beta2;
  float rest1, rest2;  ///< 1 - beta
  float shrink;        ///< Factor of the weight: 1 - learning rate * decoupled weight decay.
  float decay;         ///< Added to the gradient times the weight.
  float step_size;     ///< Learning rate / (1 - beta1^step)
  float square_root;   ///< sqrt(1 - beta2^step)
  float epsilon;
};

/// Updates the blocks [first, last): dequantizes the averages, updates them and the weights in
/// float32, and quantizes the new averages. A square that is not 0 never becomes 0, unlike in
/// bitsandbytes: an element with a zero gradient would take a step of average / epsilon.
void update_blocks(const AdamBlocks& blocks, const AdamFactors& factors, int64_t first,
                   int64_t last);

}  // namespace ddp::train
