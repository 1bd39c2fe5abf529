// libtrainer_cuda.so: the only file of trainer that is compiled against CUDA and NCCL.
#include "trainer/parallel/device/cuda_module.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include <torch/csrc/distributed/c10d/NCCLUtils.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace ddp::train {
namespace {

/// Finds a function of the CUDA runtime loaded by libc10_cuda.so: the module itself links none.
template <class Function>
Function of_runtime(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
}

// Torch 2.11 needs this; later versions detect it.
template <class Graph>
void register_generator(Graph& graph, const at::Generator& generator) {
  if constexpr (requires { graph.register_generator_state(generator); })
    graph.register_generator_state(generator);
}

class TorchGraph final : public CapturedWork {
 public:
  void record(const std::function<void()>& work, const std::vector<at::Generator>& generators,
              const TorchGraph* other) {
    for (const auto& generator : generators) register_generator(graph_, generator);
    pool_ = other != nullptr ? other->pool_ : at::cuda::graph_pool_handle();
    // Watchers query events meanwhile, and the backward pass has a thread of its own.
    graph_.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    std::exception_ptr failure;
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
    try {
      graph_.capture_end();
    } catch (...) {  // because of the first failure, if there was one
      if (!failure) failure = std::current_exception();
      stop_allocating(graph_);
    }
    if (failure) std::rethrow_exception(failure);
  }

  void replay() override { graph_.replay(); }

 private:
  /// Torch 2.11 goes on to do so after a capture that could not be ended.
  template <class Graph>
  void stop_allocating(Graph& graph) {
    if constexpr (requires { graph.register_generator_state(at::Generator()); }) {
      try {
        c10::cuda::CUDACachingAllocator::endAllocateToPool(c10::cuda::current_device(), pool_);
      } catch (const c10::Error&) {  // it has ended
      }
    }
  }

  at::cuda::CUDAGraph graph_;
  c10::MempoolId_t pool_;
};

class NcclCudaModule final : public CudaModule {
 public:
  int device_count() override {
    return other_nccl().empty() ? static_cast<int>(c10::cuda::device_count()) : 0;
  }

  std::string why_no_device() override {
    if (std::string why = other_nccl(); !why.empty()) return why;
    try {
      c10::cuda::device_count_ensure_non_zero();
    } catch (const c10::Error& error) {
      std::string why = error.what_without_backtrace();
      std::replace(why.begin(), why.end(), '\n', ' ');
      return why;
    }
    return "CUDA shows no device";
  }

  void set_device(int index) override {
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
  }

  void synchronize() override { c10::cuda::device_synchronize(); }

  std::string describe(int index) override {
    const cudaDeviceProp* properties =
        at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index));
    constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
    return fmt::format("{}, {:.1f} GiB, compute capability {}.{}", properties->name,
                       static_cast<double>(properties->totalGlobalMem) / kGiB, properties->major,
                       properties->minor);
  }

  std::string uuid(int index) override {
    const auto& bytes =
        at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index))->uuid.bytes;
    std::string text = "GPU-";
    for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return text;
  }

  std::string versions() override {
    return fmt::format("built for CUDA {}.{}, NCCL {} (compiled with {}.{}.{}), driver for CUDA {}",
                       CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, c10d::getNcclVersion(),
                       NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH, driver_version());
  }

  int64_t peak_memory_bytes(int index) override {
    const auto stats =
        c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(index));
    return stats.allocated_bytes[0].peak;
  }

  int64_t total_memory_bytes(int index) override {
    return static_cast<int64_t>(
        at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(index))->totalGlobalMem);
  }

  // Before any tensor is on the device, there may be no allocator yet.
  void limit_memory(int index, int64_t bytes) override {
    at::globalContext().lazyInitDevice(c10::kCUDA);
    const double share =
        static_cast<double>(bytes) / static_cast<double>(total_memory_bytes(index));
    c10::cuda::CUDACachingAllocator::setMemoryFraction(std::min(1.0, share),
                                                       static_cast<c10::DeviceIndex>(index));
  }

  int64_t available_memory_bytes(int index) override {
    set_device(index);
    const auto get_info = of_runtime<decltype(&cudaMemGetInfo)>("cudaMemGetInfo");
    std::size_t free = 0;
    std::size_t total = 0;
    if (get_info == nullptr || get_info(&free, &total) != cudaSuccess) return 0;
    return static_cast<int64_t>(free) + held_by_allocator(index);
  }

  // Portable: the thread that copies has its own idea of the present device.
  bool page_lock(void* memory, std::size_t bytes) override {
    using Register = cudaError_t (*)(void*, std::size_t, unsigned int);
    const auto lock = of_runtime<Register>("cudaHostRegister");
    if (lock == nullptr) return false;
    if (lock(memory, bytes, cudaHostRegisterPortable) == cudaSuccess) return true;
    forget_error();
    return false;
  }

  void page_unlock(void* memory) override {
    const auto unlock = of_runtime<cudaError_t (*)(void*)>("cudaHostUnregister");
    if (unlock != nullptr && unlock(memory) != cudaSuccess) forget_error();
  }

  void release_unused_memory() override { c10::cuda::CUDACachingAllocator::emptyCache(); }

  std::unique_ptr<CapturedWork> capture(const std::function<void()>& work,
                                        const std::vector<at::Generator>& generators,
                                        const CapturedWork* other) override {
    auto graph = std::make_unique<TorchGraph>();
    graph->record(work, generators, static_cast<const TorchGraph*>(other));
    return graph;
  }

  c10::intrusive_ptr<c10d::Backend> connect_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                                 int rank, int size, c10::Device device,
                                                 std::chrono::milliseconds timeout) override {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = timeout;
    auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
    backend->setBoundDeviceId(device);
    backend->eagerConnectSingleDevice(device);
    return backend;
  }

  // torch keeps its own text for the exception of its watchdog.
  std::string nccl_error(c10d::Backend& backend) override {
    const auto ask = of_runtime<decltype(&ncclCommGetAsyncError)>("ncclCommGetAsyncError");
    const auto text_of = of_runtime<decltype(&ncclGetErrorString)>("ncclGetErrorString");
    const auto last = of_runtime<decltype(&ncclGetLastError)>("ncclGetLastError");
    auto* const nccl = dynamic_cast<c10d::ProcessGroupNCCL*>(&backend);
    if (nccl == nullptr || ask == nullptr || text_of == nullptr || last == nullptr)
      return "no reason is known";
    const auto device = nccl->getBoundDeviceId();
    if (!device) return "no reason is known";
    set_device(device->index());  // torch looks for the communicator of the thread's device
    const auto communicator = reinterpret_cast<ncclComm_t>(nccl->getCommPtr());
    ncclResult_t result = ncclSuccess;
    if (communicator == nullptr || ask(communicator, &result) != ncclSuccess)
      return "no reason is known";
    std::string text = text_of(result);
    if (const char* more = last(communicator); more != nullptr && *more != '\0')
      text += fmt::format(" ({})", more);
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
  }

 private:
  /// ncclConfig_t is a part of torch's options of a group, and grows with NCCL's versions: with the
  /// header of another one its copies corrupt the heap. Empty if they agree.
  static std::string other_nccl() {
    const auto [major, minor, patch] = c10d::getNcclVersionTuple();
    if (major == NCCL_MAJOR && minor == NCCL_MINOR) return "";
    return fmt::format(
        "trainer was compiled with the header of NCCL {}.{}, but NCCL {}.{} is loaded, so build it "
        "again with torch's own (./scripts/setup.sh --gpu, then ./scripts/build.sh)",
        NCCL_MAJOR, NCCL_MINOR, major, minor);
  }

  /// Bytes of live tensors, and cached for future ones.
  static int64_t held_by_allocator(int index) {
    if (!c10::cuda::CUDACachingAllocator::get()->initialized()) return 0;
    return c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(index))
        .reserved_bytes[0]
        .current;
  }

  /// Or torch's next check of a kernel would take it for its own.
  static void forget_error() {
    const auto get_last = of_runtime<cudaError_t (*)()>("cudaGetLastError");
    if (get_last != nullptr) get_last();
  }

  static std::string driver_version() {
    const auto get_version = of_runtime<decltype(&cudaDriverGetVersion)>("cudaDriverGetVersion");
    int version = 0;
    if (get_version != nullptr) get_version(&version);
    return version == 0 ? "none" : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  }
};

}  // namespace
}  // namespace ddp::train

extern "C" __attribute__((visibility("default"))) ddp::train::CudaModule*
ddp_trainer_cuda_module() {
  static ddp::train::NcclCudaModule module;
  return &module;
}
