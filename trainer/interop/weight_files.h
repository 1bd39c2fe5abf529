// The files of an exported folder.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/model/load/pretrained_layout.h"
#include "trainer/optim/optimizer.h"
#include "trainer/tensorfile/safetensors.h"

namespace ddp::train {

/// Returns `weights` on the CPU as float32, bfloat16 or float16. Throws UserError if a finite
/// number would become infinite.
std::vector<NamedTensor> in_dtype(std::vector<NamedTensor> weights, torch::ScalarType dtype);

/// A weight in a file: the rows of one of the model's, or of those that are one there.
struct FileWeight {
  std::string name;
  std::vector<torch::Tensor> parts;

  torch::Tensor whole() const { return parts.size() == 1 ? parts.front() : at::cat(parts); }
};
/// Returns the name in a file of the weight `name`, or of the fused weight that contains it.
std::string file_name(std::string name, const PretrainedLayout& layout,
                      std::string_view model_type);
/// `weights` with the layers that `layout` fuses for `model_type`; their parts follow each other.
std::vector<FileWeight> fused_weights(const std::vector<NamedTensor>& weights,
                                      const PretrainedLayout& layout, std::string_view model_type);

/// "float32", "bfloat16" or "float16".
const char* python_dtype(torch::ScalarType dtype);
/// The bytes of in_dtype()'s weights, which must outlive them; also of codes, uint8.
std::vector<TensorBytes> tensor_bytes(const std::vector<NamedTensor>& weights);

/// Both publish by rename. Throw RunError.
void write_text(const std::string& path, const std::string& text);
/// Writes in_dtype()'s weights for Python's safetensors.
void write_safetensors(const std::string& path, std::vector<NamedTensor> weights,
                       torch::ScalarType dtype);
/// Writes, in the format of Python's torch.save, a dict of names and CPU tensors that
/// torch.load(path, weights_only=True) reads. Throws RunError.
void write_torch_file(const std::string& path, const std::vector<NamedTensor>& tensors);

}  // namespace ddp::train
