#include "trainer/optim/adam_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "trainer/config/param_groups.h"

namespace ddp::train {
namespace {

using Block = std::array<float, kStateBlock>;

void dequantize(const DynamicMap& map, const uint8_t* codes, int64_t count, float absmax,
                Block& numbers) {
  for (int64_t i = 0; i < count; ++i) numbers[i] = map.values()[codes[i]] * absmax;
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

void update_blocks(const AdamBlocks& blocks, const AdamFactors& factors, int64_t first,
                   int64_t last) {
  const DynamicMap& averages = DynamicMap::signed_map();
  const DynamicMap& squares = DynamicMap::unsigned_map();
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
    absmax = quantize_block(averages, average.data(), count, exp_avg);
    absmax_sq = quantize_block(squares, square.data(), count, exp_avg_sq);
    for (int64_t i = 0; i < count; ++i) exp_avg_sq[i] += exp_avg_sq[i] == 0 && square[i] > 0.0F;
  }
}

}  // namespace ddp::train
