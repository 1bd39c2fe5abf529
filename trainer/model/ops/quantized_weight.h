// Frozen weights of linear layers in 4 or 8 bits (weight_codec.h), and products with them that hold
// a few rows of a weight at a time in the precision of the product.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>

#include "trainer/config/adapter_config.h"

namespace ddp::train {

/// A matrix [rows, columns] as bitsandbytes has it. Copies share its tensors.
struct QuantizedWeight {
  torch::Tensor codes;  ///< NF4: uint8 [rows, columns / 2]; int8 [rows, columns].
  /// The largest magnitude of each block, uint8 codes themselves, or float32 where a file has them
  /// so; int8: of each row, float32.
  torch::Tensor absmax;
  torch::Tensor absmax_scales;  ///< float32, of blocks of codes in `absmax`; else undefined.
  torch::Tensor absmax_mean;    ///< float32 scalar, likewise.

  bool defined() const { return codes.defined(); }
  bool is_nf4() const { return codes.scalar_type() == torch::kUInt8; }
  int64_t rows() const { return codes.size(0); }
  int64_t columns() const { return codes.size(1) * (is_nf4() ? 2 : 1); }
};

/// `values`: [rows, columns], for NF4 a multiple of kNf4Block columns, on a CPU.
QuantizedWeight quantize(const torch::Tensor& values, BaseFormat format);

/// Rows [first, last) in float32.
torch::Tensor dequantize(const QuantizedWeight& weight, int64_t first, int64_t last);
/// The same by torch's operators, as on a GPU without kernels; on a CPU bitwise identical.
torch::Tensor dequantize_by_operators(const QuantizedWeight& weight, int64_t first, int64_t last);

/// x [.., columns] -> x weight^T + bias [.., rows], in the type of autocast, else of `x`. The
/// backward pass, with respect to x alone, dequantizes again. `bias` may be undefined.
torch::Tensor quantized_linear(const torch::Tensor& x, const QuantizedWeight& weight,
                               const torch::Tensor& bias);

}  // namespace ddp::train
