// The interface to all that needs CUDA: a shared library next to trainer, loaded only for a GPU. A
// run on the CPU therefore never maps libtorch_cuda.so (0.17 s and 365 MB per process).
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

/// A CUDA graph: work recorded from a stream, launched as a whole.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  /// Queues it on the current stream, using the generators' current states.
  virtual void replay() = 0;
};

/// The module's interface. The object lives as long as the process.
class CudaModule {
 public:
  virtual ~CudaModule() = default;
  virtual int device_count() = 0;
  /// CUDA's reason for device_count() being 0, one line.
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
  /// Peak memory occupied by tensors on device `index` so far, bytes.
  virtual int64_t peak_memory_bytes(int index) = 0;
  virtual int64_t total_memory_bytes(int index) = 0;
  /// Limits the memory of tensors on device `index` from now on; beyond it torch throws its
  /// OutOfMemoryError.
  virtual void limit_memory(int index, int64_t bytes) = 0;
  /// Memory of device `index` available to this process: free, or held for its tensors; bytes.
  virtual int64_t available_memory_bytes(int index) = 0;
  /// Page-locks host memory, so that copies to and from it are asynchronous. Returns false if CUDA
  /// refuses it.
  virtual bool page_lock(void* memory, std::size_t bytes) = 0;
  virtual void page_unlock(void* memory) = 0;
  /// Returns memory that torch caches for later tensors to the device.
  virtual void release_unused_memory() = 0;
  /// Records what `work` queues on the current stream, which must not be a default one, without
  /// running it. Tensors that `work` creates live in the graph's own memory, or in that of `other`
  /// (may be null); the two are then never replayed at the same time. `generators`: those that
  /// `work` uses. Throws c10::Error if the work cannot be recorded.
  virtual std::unique_ptr<CapturedWork> capture(const std::function<void()>& work,
                                                const std::vector<at::Generator>& generators,
                                                const CapturedWork* other) = 0;
  /// Returns connected to the other ranks. Throws c10::Error with NCCL's message.
  virtual c10::intrusive_ptr<c10d::Backend> connect_nccl(
      const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::Device device,
      std::chrono::milliseconds timeout) = 0;
  /// NCCL's reason for the failure of such a backend's communicator, one line.
  virtual std::string nccl_error(c10d::Backend& backend) = 0;
};

/// Loads the module once; returns null if that fails, with the reason in `why_not` (may be null).
/// Call before the first tensor: torch checks only once whether CUDA is available.
CudaModule* load_cuda_module(std::string* why_not);

/// Returns the module if it has been loaded, else null.
CudaModule* loaded_cuda_module();

/// Whether this process can see an NVIDIA device, detected without loading any CUDA
/// library.
bool nvidia_device_visible();

/// The symbol exported by the module.
inline constexpr const char* kCudaModuleEntry = "ddp_trainer_cuda_module";
using CudaModuleEntry = CudaModule* (*)();

}  // namespace ddp::train
