// The seam to everything that needs CUDA: a shared library beside trainer, loaded only when a GPU
// is used. A run on the CPU therefore never maps libtorch_cuda.so (0.17 s and 365 MB per process).
#pragma once

#include <ATen/core/Generator.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ddp::train {

/// A CUDA graph: what a stream recorded, launched as a whole.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  /// Queues it on the current stream, with the generators as they are now.
  virtual void replay() = 0;
  /// Kernels, copies and fills that it consists of.
  virtual int64_t launches() const = 0;
};

/// What the module offers. The object lives as long as the process.
class CudaModule {
 public:
  virtual ~CudaModule() = default;
  virtual int device_count() = 0;
  /// Why device_count() is 0, in CUDA's own words, one line.
  virtual std::string why_no_device() = 0;
  virtual void set_device(int index) = 0;
  /// Waits for all work queued on the current device.
  virtual void synchronize() = 0;
  /// "GPU-" and 32 hexadecimal digits; that of the MIG instance where the GPU is divided.
  virtual std::string uuid(int index) = 0;
  /// For example "NVIDIA H100 80GB HBM3, 79.1 GiB, compute capability 9.0".
  virtual std::string describe(int index) = 0;
  /// CUDA runtime, driver, cuDNN and NCCL versions, one line.
  virtual std::string versions() = 0;
  /// Largest amount of memory that tensors have occupied on device `index` so far, bytes.
  virtual int64_t peak_memory_bytes(int index) = 0;
  virtual int64_t total_memory_bytes(int index) = 0;
  /// The most that tensors may take of device `index` from now on; beyond it torch throws its
  /// OutOfMemoryError.
  virtual void limit_memory(int index, int64_t bytes) = 0;
  /// Memory of device `index` that this process can use: free, or held for its tensors; bytes.
  virtual int64_t available_memory_bytes(int index) = 0;
  /// Page-locks host memory, so that copies to and from it run beside the host. False if CUDA does
  /// not take it.
  virtual bool page_lock(void* memory, std::size_t bytes) = 0;
  virtual void page_unlock(void* memory) = 0;
  /// Gives memory that torch keeps for coming tensors back to the device.
  virtual void release_unused_memory() = 0;
  /// Records what `work` queues on the current stream, which is none of CUDA's default ones;
  /// nothing of it runs. Tensors that `work` makes live in memory of the graph's own, or in that of
  /// `other` (may be null), which is then replayed at other times. `generators`: those that `work`
  /// draws from. Throws c10::Error if the work cannot be recorded.
  virtual std::unique_ptr<CapturedWork> capture(const std::function<void()>& work,
                                                const std::vector<at::Generator>& generators,
                                                const CapturedWork* other) = 0;
  /// Connected to the other ranks on return. Throws c10::Error with NCCL's message.
  virtual c10::intrusive_ptr<c10d::Backend> connect_nccl(
      const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::Device device,
      std::chrono::milliseconds timeout) = 0;
  /// Why the communicator of such a backend has failed, in NCCL's words, one line.
  virtual std::string nccl_error(c10d::Backend& backend) = 0;
};

/// Loads the module once; null when that is not possible, with the reason in `why_not` (may be
/// null). Call before the first tensor: torch asks only once whether CUDA is there.
CudaModule* load_cuda_module(std::string* why_not);

/// The module when it has been loaded, else null.
CudaModule* loaded_cuda_module();

/// Whether this machine shows an NVIDIA device to this process, found without loading any CUDA
/// library.
bool nvidia_device_visible();

/// Symbol that the module exports.
inline constexpr const char* kCudaModuleEntry = "ddp_trainer_cuda_module";
using CudaModuleEntry = CudaModule* (*)();

}  // namespace ddp::train
