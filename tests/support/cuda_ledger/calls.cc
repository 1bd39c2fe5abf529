// Preloaded into trainer, counts what reaches a GPU's runtime and NCCL as the fake GPUs count it,
// and passes every call on. The report is the fake's (fake_cuda/runtime/ledger.h), in the file
// CUDA_LEDGER. On a real GPU it shows what the fake ones are worth (scripts/gpu_check.sh); on a
// fake one both have to count the same (tests/gpu).
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "tests/support/fake_cuda/runtime/ledger.h"
#include "tests/support/fake_cuda/runtime/memory.h"
#include "tests/support/fake_cuda/runtime/settings.h"

#define EXPORTED __attribute__((visibility("default")))

namespace fake_cuda {

const Settings& settings() {
  static const auto* const value = [] {
    auto* s = new Settings;
    const char* file = std::getenv("CUDA_LEDGER");
    if (file != nullptr) s->report = file;
    s->sync_sites = true;
    return s;
  }();
  return *value;
}

namespace {

struct Memory {
  std::mutex mutex;
  std::map<const void*, std::size_t> blocks;
  MemoryUse use;
};

// Never destroyed, as the ledger.
Memory& memory() {
  static auto* value = new Memory;
  return *value;
}

}  // namespace

MemoryUse device_memory_use() {
  const std::lock_guard lock(memory().mutex);
  return memory().use;
}

namespace {

/// The library's own function. torch's libraries are loaded locally, where RTLD_NEXT does not look.
template <class Function>
Function* next(const char* library, const char* name) {
  void* handle = ::dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  void* found = handle == nullptr ? nullptr : ::dlsym(handle, name);
  if (found == nullptr) {
    std::fprintf(stderr, "cuda_ledger: %s has no %s\n", library, name);
    std::abort();
  }
  return reinterpret_cast<Function*>(found);
}

const std::string& cudart() {
  static const std::string name = "libcudart.so." + std::to_string(CUDART_VERSION / 1000);
  return name;
}

template <class Function>
Function* of_cuda(const char* name) {
  return next<Function>(cudart().c_str(), name);
}
template <class Function>
Function* of_nccl(const char* name) {
  return next<Function>("libnccl.so.2", name);
}

bool on_device(const cudaPointerAttributes& place) {
  return place.type == cudaMemoryTypeDevice || place.type == cudaMemoryTypeManaged;
}

cudaPointerAttributes place_of(const void* pointer) {
  cudaPointerAttributes place{};
  of_cuda<cudaError_t(cudaPointerAttributes*, const void*)>("cudaPointerGetAttributes")(&place,
                                                                                        pointer);
  return place;
}

/// As runtime/copies.cc of the fake counts.
void count_copy(const void* to, const void* from, std::size_t bytes, bool async) {
  if (bytes == 0) return;
  const auto source = place_of(from);
  const auto target = place_of(to);
  const char* way =
      on_device(source) ? (on_device(target) ? "d2d" : "d2h") : (on_device(target) ? "h2d" : "h2h");
  const bool pageable =
      source.type == cudaMemoryTypeUnregistered || target.type == cudaMemoryTypeUnregistered;
  count(std::string("copy:") + way, bytes);
  if (pageable) count("copy:pageable", bytes);
  const bool host_waits = async ? way == std::string("d2h") && pageable : way != std::string("d2d");
  if (host_waits) count_host_sync(async ? "pageable cudaMemcpyAsync" : "cudaMemcpy");
}

/// NCCL's ncclBcast calls ncclBroadcast.
thread_local bool in_broadcast = false;

std::size_t bytes_of(std::size_t elements, ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return elements;
    case ncclFloat16:
    case ncclBfloat16:
      return 2 * elements;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8 * elements;
    default:
      return 4 * elements;
  }
}

}  // namespace
}  // namespace fake_cuda

extern "C" {

EXPORTED cudaError_t cudaMalloc(void** out, std::size_t bytes) {
  fake_cuda::count("cudaMalloc", bytes);
  const cudaError_t result =
      fake_cuda::of_cuda<cudaError_t(void**, std::size_t)>("cudaMalloc")(out, bytes);
  if (result != cudaSuccess) return result;
  auto& memory = fake_cuda::memory();
  const std::lock_guard lock(memory.mutex);
  memory.blocks[*out] = bytes;
  memory.use.used += bytes;
  memory.use.peak = std::max(memory.use.peak, memory.use.used);
  return result;
}

EXPORTED cudaError_t cudaFree(void* pointer) {
  if (pointer != nullptr) {
    fake_cuda::count("cudaFree");
    fake_cuda::count_host_sync("cudaFree");
    auto& memory = fake_cuda::memory();
    const std::lock_guard lock(memory.mutex);
    const auto found = memory.blocks.find(pointer);
    if (found != memory.blocks.end()) {
      memory.use.used -= found->second;
      memory.blocks.erase(found);
    }
  }
  return fake_cuda::of_cuda<cudaError_t(void*)>("cudaFree")(pointer);
}

EXPORTED cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes,
                                cudaMemcpyKind kind) {
  fake_cuda::count_copy(to, from, bytes, false);
  return fake_cuda::of_cuda<cudaError_t(void*, const void*, std::size_t, cudaMemcpyKind)>(
      "cudaMemcpy")(to, from, bytes, kind);
}

EXPORTED cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes,
                                     cudaMemcpyKind kind, cudaStream_t stream) {
  fake_cuda::count_copy(to, from, bytes, true);
  return fake_cuda::of_cuda<cudaError_t(void*, const void*, std::size_t, cudaMemcpyKind,
                                        cudaStream_t)>("cudaMemcpyAsync")(to, from, bytes, kind,
                                                                          stream);
}

EXPORTED cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  fake_cuda::count_host_sync("cudaStreamSynchronize");
  return fake_cuda::of_cuda<cudaError_t(cudaStream_t)>("cudaStreamSynchronize")(stream);
}

EXPORTED cudaError_t cudaDeviceSynchronize() {
  fake_cuda::count_host_sync("cudaDeviceSynchronize");
  return fake_cuda::of_cuda<cudaError_t()>("cudaDeviceSynchronize")();
}

EXPORTED cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  fake_cuda::count_host_sync("cudaEventSynchronize");
  return fake_cuda::of_cuda<cudaError_t(cudaEvent_t)>("cudaEventSynchronize")(event);
}

EXPORTED ncclResult_t ncclAllReduce(const void* in, void* out, size_t elements, ncclDataType_t type,
                                    ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  fake_cuda::count("nccl:all_reduce", fake_cuda::bytes_of(elements, type));
  return fake_cuda::of_nccl<decltype(::ncclAllReduce)>("ncclAllReduce")(in, out, elements, type, op,
                                                                        comm, stream);
}

EXPORTED ncclResult_t ncclBroadcast(const void* in, void* out, size_t elements, ncclDataType_t type,
                                    int root, ncclComm_t comm, cudaStream_t stream) {
  if (!fake_cuda::in_broadcast)
    fake_cuda::count("nccl:broadcast", fake_cuda::bytes_of(elements, type));
  return fake_cuda::of_nccl<decltype(::ncclBroadcast)>("ncclBroadcast")(in, out, elements, type,
                                                                        root, comm, stream);
}

EXPORTED ncclResult_t ncclBcast(void* memory, size_t elements, ncclDataType_t type, int root,
                                ncclComm_t comm, cudaStream_t stream) {
  fake_cuda::count("nccl:broadcast", fake_cuda::bytes_of(elements, type));
  fake_cuda::in_broadcast = true;
  const ncclResult_t result = fake_cuda::of_nccl<decltype(::ncclBcast)>("ncclBcast")(
      memory, elements, type, root, comm, stream);
  fake_cuda::in_broadcast = false;
  return result;
}

EXPORTED ncclResult_t ncclAllGather(const void* in, void* out, size_t elements, ncclDataType_t type,
                                    ncclComm_t comm, cudaStream_t stream) {
  fake_cuda::count("nccl:all_gather", fake_cuda::bytes_of(elements, type));
  return fake_cuda::of_nccl<decltype(::ncclAllGather)>("ncclAllGather")(in, out, elements, type,
                                                                        comm, stream);
}

EXPORTED ncclResult_t ncclReduceScatter(const void* in, void* out, size_t elements,
                                        ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                        cudaStream_t stream) {
  fake_cuda::count("nccl:reduce_scatter", fake_cuda::bytes_of(elements, type));
  return fake_cuda::of_nccl<decltype(::ncclReduceScatter)>("ncclReduceScatter")(
      in, out, elements, type, op, comm, stream);
}
}
