// Kernels: registered by torch's libraries, launched as no-ops and counted. What they would compute
// comes from numerics/, as work of its own on the same stream.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/fake_cuda/runtime/errors.h"
#include "tests/support/fake_cuda/runtime/ledger.h"
#include "tests/support/fake_cuda/runtime/memory.h"
#include "tests/support/fake_cuda/runtime/settings.h"
#include "tests/support/fake_cuda/runtime/streams.h"

namespace {

struct Kernel {
  std::string name;
};

struct Kernels {
  std::mutex mutex;
  std::unordered_map<const void*, Kernel*> by_function;
};

Kernels& kernels() {
  static auto* value = new Kernels;
  return *value;
}

Kernel* kernel_of(const void* function) {
  const std::lock_guard lock(kernels().mutex);
  const auto at = kernels().by_function.find(function);
  return at == kernels().by_function.end() ? nullptr : at->second;
}

struct LaunchConfig {
  dim3 grid;
  dim3 block;
  std::size_t shared;
  cudaStream_t stream;
};
thread_local std::vector<LaunchConfig> pushed;

cudaError_t check(dim3 grid, dim3 block) {
  const auto threads = uint64_t{block.x} * block.y * block.z;
  const bool good = threads > 0 && threads <= 1024 && block.z <= 64 && grid.x > 0 && grid.y > 0 &&
                    grid.z > 0 && grid.y <= 65535 && grid.z <= 65535;
  return good ? cudaSuccess : fake_cuda::failed(cudaErrorInvalidConfiguration);
}

[[noreturn]] void never_end() {
  std::fprintf(stderr, "fake CUDA: a kernel never ends\n");
  for (;;) ::pause();
}

/// The fault planned for this launch, or nothing.
fake_cuda::Work planned_fault(const std::string& name) {
  static std::atomic<int64_t> launches{0};
  const int64_t launch = ++launches;
  const auto& plan = fake_cuda::settings();
  if (!plan.faults_apply()) return nullptr;
  if (launch == plan.illegal_address_at)
    return [] { fake_cuda::set_sticky(cudaErrorIllegalAddress); };
  const bool stuck = launch == plan.stuck_kernel_at ||
                     (!plan.stuck_kernel.empty() && name.find(plan.stuck_kernel) != name.npos);
  return stuck ? fake_cuda::Work(never_end) : nullptr;
}

void launch_named(cudaStream_t stream, const std::string& name, fake_cuda::Work work) {
  fake_cuda::begin_context(fake_cuda::current_device());
  if (auto* graph = fake_cuda::stream_of(stream).capture) {
    graph->kernels.push_back(name);
  } else {
    fake_cuda::count_launch(name);
  }
  fake_cuda::trace("launch %.200s", name.c_str());
  if (auto fault = planned_fault(name)) return fake_cuda::submit(stream, std::move(fault));
  if (const int64_t length = fake_cuda::settings().kernel_us; length > 0)
    fake_cuda::submit(stream, [length] { ::usleep(static_cast<useconds_t>(length)); });
  if (work) fake_cuda::submit(stream, std::move(work));
}

cudaError_t launch(const Kernel* kernel, dim3 grid, dim3 block, cudaStream_t stream) {
  FAKE_CUDA_RETURN_IF_STICKY();
  if (const auto error = check(grid, block); error != cudaSuccess) return error;
  launch_named(stream, kernel->name, nullptr);
  return cudaSuccess;
}

}  // namespace

extern "C" {

void fakecuda_launch(cudaStream_t stream, const char* name, std::function<void()>* work) {
  launch_named(stream, name, work == nullptr ? nullptr : std::move(*work));
}

int fakecuda_missing(const char* name, int error) {
  fake_cuda::count(std::string("missing:") + name);
  const bool lax = fake_cuda::settings().lax;
  if (!lax) std::fprintf(stderr, "fake CUDA: %s is not implemented\n", name);
  return lax ? 0 : error;
}

void fakecuda_count(const char* name, uint64_t bytes) { fake_cuda::count(name, bytes); }

int fakecuda_accounts() { return fake_cuda::settings().account ? 1 : 0; }

int fakecuda_computes() { return fake_cuda::settings().numbers ? 1 : 0; }

int fakecuda_is_faulty_rank() { return fake_cuda::settings().faults_apply() ? 1 : 0; }

// --- what nvcc's output calls when a library is loaded
void** __cudaRegisterFatBinary(void*) {
  static void* handle[1];
  return handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  const std::lock_guard lock(kernels().mutex);
  kernels().by_function[host] = new Kernel{name};
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, std::size_t, int, int) {}

// --- what <<<...>>> calls
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared,
                                     cudaStream_t stream) {
  pushed.push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  if (pushed.empty()) return cudaErrorMissingConfiguration;
  const LaunchConfig config = pushed.back();
  pushed.pop_back();
  *grid = config.grid;
  *block = config.block;
  *shared = config.shared;
  *static_cast<cudaStream_t*>(stream) = config.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* out, const void* function) {
  Kernel* kernel = kernel_of(function);
  *out = reinterpret_cast<cudaKernel_t>(kernel);
  return kernel != nullptr ? cudaSuccess : fake_cuda::failed(cudaErrorInvalidDeviceFunction);
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void**, std::size_t,
                               cudaStream_t stream) {
  return launch(reinterpret_cast<const Kernel*>(kernel), grid, block, stream);
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void**, std::size_t,
                             cudaStream_t stream) {
  // Without an entry it is a cudaKernel_t in disguise, as CUDA allows.
  const Kernel* kernel = kernel_of(function);
  return launch(kernel != nullptr ? kernel : static_cast<const Kernel*>(function), grid, block,
                stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function,
                                void** args) {
  return cudaLaunchKernel(function, config->gridDim, config->blockDim, args,
                          config->dynamicSmemBytes, config->stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void** args,
                                        std::size_t shared, cudaStream_t stream) {
  return cudaLaunchKernel(function, grid, block, args, shared, stream);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void*) {
  *out = {};
  out->maxThreadsPerBlock = 1024;
  out->numRegs = 32;
  out->ptxVersion = out->binaryVersion = fake_cuda::settings().compute_capability;
  out->maxDynamicSharedSizeBytes = 227 * 1024;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t, cudaFuncAttribute, int, int) {
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int,
                                                          std::size_t) {
  *blocks = 2;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int,
                                                                   std::size_t, unsigned) {
  *blocks = 2;
  return cudaSuccess;
}

// A device variable lives in its shadow variable on the host; nothing reads what is written to it.
cudaError_t cudaGetSymbolAddress(void** out, const void* symbol) {
  *out = const_cast<void*>(symbol);
  return cudaSuccess;
}
cudaError_t cudaMemcpyToSymbol(const void*, const void*, std::size_t bytes, std::size_t,
                               cudaMemcpyKind) {
  fake_cuda::count("copy:symbol", bytes);
  return cudaSuccess;
}
}
