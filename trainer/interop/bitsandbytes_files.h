// Weights of linear layers in a folder that transformers and bitsandbytes have quantized.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trainer/model/ops/quantized_weight.h"
#include "trainer/optim/optimizer.h"
#include "trainer/tensorfile/safetensors.h"

namespace ddp::train {

/// A weight in codes, and the tensors next to it that these need.
struct StoredCodes {
  TensorBytes weight;  ///< The weight's shape, [out, in], and the bytes of its codes.
  const TensorBytes* absmax = nullptr;
  const TensorBytes* nested_absmax = nullptr;  ///< Null: absmax is float32.
  float mean = 0.0F;
  /// For a part of a weight, whose rows `weight` is: the rows before it, and of the whole.
  int64_t first_row = 0, whole_rows = 0;

  /// The magnitudes of a part are float32: a part may begin in the middle of a block of 256.
  QuantizedWeight read() const;
  /// `rows`: the part's bytes of `weight`.
  StoredCodes part(const TensorBytes& rows, int64_t first) const;
};

/// Takes the tensors of weights in codes out of `tensors`, which are by name, but for the weights.
/// Throws UserError if they are not of NF4 in blocks of 64 or of int8.
std::map<std::string, StoredCodes> take_stored_codes(
    std::map<std::string, const TensorBytes*>& tensors, const std::string& folder);

/// Writes weights for transformers with bitsandbytes: those of `quantized` in NF4, the others in
/// `dtype`. Throws as write_safetensors().
void write_nf4_safetensors(const std::string& path, std::vector<NamedTensor> weights,
                           torch::ScalarType dtype, const std::vector<std::string>& quantized);

}  // namespace ddp::train
