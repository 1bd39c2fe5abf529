// Matrices of weights in 4 or 8 bits, with the codes and rounding of bitsandbytes. No LibTorch.
//
// NF4 (T. Dettmers et al., "QLoRA: efficient finetuning of quantized LLMs", 2023): blocks of 64
// numbers, divided by their largest magnitude and rounded to the nearest of 16 values; the largest
// magnitudes, less their mean, are in 8 bits themselves, in blocks of 256 (dynamic_map.h). int8:
// rows, divided by their largest magnitude / 127 and rounded.
#pragma once

#include <array>
#include <cstdint>

#include "trainer/model/ops/cpu/kernels.h"

namespace ddp::train {

inline constexpr int64_t kNf4Block = cpu::kCodedBlock;
inline constexpr int64_t kAbsmaxBlock = 256;

/// Quantiles of a normal distribution, -1 to 1.
inline constexpr std::array<float, 16> kNf4Values = {-1.0F,
                                                     -0.6961928009986877F,
                                                     -0.5250730514526367F,
                                                     -0.39491748809814453F,
                                                     -0.28444138169288635F,
                                                     -0.18477343022823334F,
                                                     -0.09105003625154495F,
                                                     0.0F,
                                                     0.07958029955625534F,
                                                     0.16093020141124725F,
                                                     0.24611230194568634F,
                                                     0.33791524171829224F,
                                                     0.44070982933044434F,
                                                     0.5626170039176941F,
                                                     0.7229568362236023F,
                                                     1.0F};

/// Codes of `blocks` blocks, two in a byte with the first in its upper half, and their largest
/// magnitudes.
void quantize_nf4(const float* values, int64_t blocks, uint8_t* codes, float* absmax);

/// Codes of the largest magnitudes of blocks, less `mean`; `absmax`: of each kAbsmaxBlock of them.
void quantize_absmax(const float* values, int64_t count, float mean, uint8_t* codes, float* absmax);
/// The inverse, for the blocks [first, last).
void dequantize_absmax(const uint8_t* codes, const float* absmax, float mean, int64_t first,
                       int64_t last, float* values);

/// Codes and the largest magnitude of each row.
void quantize_int8(const float* values, int64_t rows, int64_t columns, int8_t* codes,
                   float* absmax);

}  // namespace ddp::train
