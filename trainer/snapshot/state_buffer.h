// A copy of the training state in host memory, in the form that snapshot files have.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/parallel/device/device_wait.h"
#include "trainer/parallel/device/page_lock.h"
#include "trainer/tensorfile/safetensors.h"

namespace ddp::train {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

/// Returns the name of a dtype in safetensors files.
const char* dtype_name(torch::ScalarType type);

/// Construction fixes the layout: begin_copy() takes tensors of the same names, shapes and dtypes.
class StateBuffer {
 public:
  /// Allocates its own memory. Both constructors page-lock the memory if a tensor is on a GPU.
  explicit StateBuffer(const NamedTensors& like);
  /// Uses foreign memory of bytes_of(like) bytes, which must outlive it.
  StateBuffer(const NamedTensors& like, std::byte* memory);
  /// CPU tensors that do not change are used as they are, without a copy.
  static std::shared_ptr<StateBuffer> of_copy(const NamedTensors& tensors);

  static std::size_t bytes_of(const NamedTensors& like);

  /// Copies the values; on a GPU, where they are valid from the mark `ready` on, only queues the
  /// copies.
  void begin_copy(const NamedTensors& tensors, const ReadyEvent& ready);
  /// After begin_copy(): the mark after which the tensors may change. Null for CPUs.
  const ReadyEvent& copied() const { return copied_; }
  /// Waits for the copies. Returns false if the device was given up before they completed.
  bool finish_copy() const { return begun_ && device_came_to(copied_); }

  /// The copies, in the order of the tensors.
  const std::vector<TensorBytes>& tensors() const { return bytes_; }
  std::size_t size() const { return size_; }

 private:
  StateBuffer() = default;
  void lay_out(const NamedTensors& like, std::byte* memory);
  void add(const std::string& name, const torch::Tensor& copy);
  void lock_pages(const NamedTensors& like, std::byte* memory);

  std::unique_ptr<MappedMemory> own_;
  std::unique_ptr<PageLock> lock_;  // null for CPUs
  bool begun_ = false;
  ReadyEvent copied_;
  std::size_t size_ = 0;
  std::vector<torch::Tensor> copies_;
  std::vector<TensorBytes> bytes_;
};

/// Returns the name of the first floating-point tensor that holds NaN or Inf, or "". Reads float32
/// and float64.
std::string first_non_finite(const std::vector<TensorBytes>& tensors);

}  // namespace ddp::train
