// The files of an exported folder.
#pragma once

#include <string>
#include <vector>

#include "trainer/optim/optimizer.h"
#include "trainer/tensorfile/safetensors.h"

namespace ddp::train {

/// Returns `weights` on the CPU as float32, bfloat16 or float16. Throws UserError if a finite
/// number would become infinite.
std::vector<NamedTensor> in_dtype(std::vector<NamedTensor> weights, torch::ScalarType dtype);

/// "float32", "bfloat16" or "float16".
const char* python_dtype(torch::ScalarType dtype);
/// The bytes of in_dtype()'s weights, which must outlive them; also of codes, uint8.
std::vector<TensorBytes> tensor_bytes(const std::vector<NamedTensor>& weights);

/// Both publish by rename. Throw RunError.
void write_text(const std::string& path, const std::string& text);
/// Writes in_dtype()'s weights for Python's safetensors.
void write_safetensors(const std::string& path, std::vector<NamedTensor> weights,
                       torch::ScalarType dtype);

}  // namespace ddp::train
