// Addresses and their memory, managed separately, as torch's expandable segments require. Addresses
// without memory cannot be touched.
#include <cuda.h>
#include <sys/mman.h>

#include <cstdint>
#include <map>
#include <mutex>

#include "tests/support/fake_cuda/fake_cuda.h"

namespace {

constexpr std::size_t kGranularity = 2ULL << 20;

struct Memory {
  std::size_t bytes = 0;
  int device = 0;
  int users = 1;  // the creator, and each place where it is mapped
};

struct State {
  std::mutex mutex;
  std::map<CUmemGenericAllocationHandle, Memory> memory;
  std::map<CUdeviceptr, CUmemGenericAllocationHandle> mapped;
  CUmemGenericAllocationHandle last = 0;

  void drop(CUmemGenericAllocationHandle handle) {
    Memory& each = memory.at(handle);
    if (--each.users > 0) return;
    fakecuda_give_memory_back(each.device, each.bytes);
    memory.erase(handle);
  }
};

// Never destroyed, as device memory is.
State& state() {
  static auto* value = new State;
  return *value;
}

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

}  // namespace

extern "C" {

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *bytes = kGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t, CUdeviceptr,
                             unsigned long long) {
  void* range =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = reinterpret_cast<CUdeviceptr>(range);
  fakecuda_remember_range(range, bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr begin, size_t bytes) {
  fakecuda_forget_range(pointer(begin));
  return ::munmap(pointer(begin), bytes) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* out, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long) {
  fakecuda_count("cuMemCreate", bytes);
  if (bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  if (fakecuda_take_memory(properties->location.id, bytes) == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(state().mutex);
  *out = ++state().last;
  state().memory[*out] = {bytes, properties->location.id};
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr to, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().memory.find(handle);
  if (found == state().memory.end() || offset != 0 || found->second.bytes != bytes ||
      state().mapped.count(to) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  ++found->second.users;
  state().mapped[to] = handle;
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr begin, size_t bytes, const CUmemAccessDesc*, size_t) {
  return ::mprotect(pointer(begin), bytes, PROT_READ | PROT_WRITE) == 0 ? CUDA_SUCCESS
                                                                        : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemUnmap(CUdeviceptr begin, size_t bytes) {
  const std::lock_guard lock(state().mutex);
  const auto first = state().mapped.lower_bound(begin);
  const auto last = state().mapped.lower_bound(begin + bytes);
  if (first == last) return CUDA_ERROR_INVALID_VALUE;
  for (auto it = first; it != last; ++it) state().drop(it->second);
  state().mapped.erase(first, last);
  // Its content is lost with the memory.
  ::madvise(pointer(begin), bytes, MADV_DONTNEED);
  return ::mprotect(pointer(begin), bytes, PROT_NONE) == 0 ? CUDA_SUCCESS
                                                           : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(state().mutex);
  if (state().memory.count(handle) == 0) return CUDA_ERROR_INVALID_VALUE;
  state().drop(handle);
  return CUDA_SUCCESS;
}
}
