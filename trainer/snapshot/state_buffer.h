// A copy of the training state in host memory, laid out as the data part of a snapshot file.
#pragma once

#include <c10/core/Event.h>
#include <torch/torch.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/storage/safetensors.h"

namespace ddp::train {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

using ReadyEvent = std::shared_ptr<c10::Event>;

/// Name of a dtype in safetensors files.
const char* dtype_name(torch::ScalarType type);

/// Fixed at construction: every copy_from() takes tensors of the same names, shapes and dtypes.
class StateBuffer {
 public:
  /// In its own memory, page-locked if a tensor is on a GPU.
  explicit StateBuffer(const NamedTensors& like);
  /// In foreign memory of bytes_of(like) bytes that outlives it.
  StateBuffer(const NamedTensors& like, std::byte* memory);

  static std::size_t bytes_of(const NamedTensors& like);

  /// Copies the values; for tensors on a GPU on a stream of the calling thread's own, after
  /// everything that was queued when `ready` was recorded.
  void copy_from(const NamedTensors& tensors, const ReadyEvent& ready);

  /// The copies, in the order of the tensors.
  const std::vector<TensorBytes>& tensors() const { return bytes_; }
  std::size_t size() const { return size_; }

 private:
  void lay_out(const NamedTensors& like, std::byte* memory);

  torch::Tensor own_;
  std::size_t size_ = 0;
  std::vector<torch::Tensor> copies_;
  std::vector<TensorBytes> bytes_;
};

/// A mark in the present stream of `device`, for copy_from() in another thread; null for CPUs.
ReadyEvent record_ready(torch::Device device);

/// Name of the first tensor of a floating type that holds NaN or Inf, or "". Reads float32 and
/// float64.
std::string first_non_finite(const std::vector<TensorBytes>& tensors);

}  // namespace ddp::train
