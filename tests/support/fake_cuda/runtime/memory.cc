#include "tests/support/fake_cuda/runtime/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/fake_cuda/runtime/errors.h"
#include "tests/support/fake_cuda/runtime/ledger.h"
#include "tests/support/fake_cuda/runtime/settings.h"
#include "tests/support/fake_cuda/runtime/streams.h"

namespace fake_cuda {
namespace {

std::uintptr_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

constexpr std::size_t kGranularity = 2ULL << 20;
constexpr std::size_t kPage = 4096;

struct Memory {
  std::mutex mutex;
  std::map<std::uintptr_t, Block> blocks;  // by address
  std::map<int, MemoryUse> use;            // by device
};

Memory& memory() {
  static auto* value = new Memory;
  return *value;
}

MemoryUse& use_of(Memory& all, int device) {
  const auto [at, fresh] = all.use.try_emplace(device, MemoryUse{kContextBytes, kContextBytes});
  if (fresh) count("context", kContextBytes);
  return at->second;
}

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

// Pages that nobody writes cost nothing, so a device may be larger than the machine's memory.
void* map_pages(std::size_t bytes) {
  void* pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return pages == MAP_FAILED ? nullptr : pages;
}

bool planned_to_fail() {
  static std::atomic<int64_t> calls{0};
  const auto& plan = settings();
  if (plan.out_of_memory_at == 0 || !plan.faults_apply()) return false;
  const int64_t call = ++calls;
  return call == plan.out_of_memory_at ||
         (plan.out_of_memory_lasts && call > plan.out_of_memory_at);
}

/// Counts `mapped` bytes against the device; false when it has not that many left.
bool reserve(int device, std::size_t mapped) {
  const std::lock_guard lock(memory().mutex);
  MemoryUse& use = use_of(memory(), device);
  if (use.used + mapped > settings().memory_bytes) return false;
  use.used += mapped;
  use.peak = std::max(use.peak, use.used);
  return true;
}

void remember(const Block& block) {
  const std::lock_guard lock(memory().mutex);
  memory().blocks[block.begin] = block;
}

cudaError_t allocate(void** out, std::size_t bytes, MemoryKind kind) {
  FAKE_CUDA_RETURN_IF_STICKY();
  begin_context(current_device());
  *out = nullptr;
  if (bytes == 0) return cudaSuccess;
  const std::size_t mapped = round_up(bytes, kGranularity);
  if (planned_to_fail() || !reserve(current_device(), mapped)) {
    count("out_of_memory", bytes);
    return failed(cudaErrorMemoryAllocation);
  }
  void* pages = map_pages(mapped);
  if (pages == nullptr) return failed(cudaErrorMemoryAllocation);
  remember({address(pages), bytes, mapped, current_device(), kind});
  *out = pages;
  return cudaSuccess;
}

/// Removes and returns the block that begins at `pointer`; kUnknown when there is none.
Block forget(const void* pointer) {
  const std::lock_guard lock(memory().mutex);
  const auto at = memory().blocks.find(address(pointer));
  if (at == memory().blocks.end()) return {};
  const Block block = at->second;
  memory().blocks.erase(at);
  if (block.on_device()) use_of(memory(), block.device).used -= block.mapped;
  return block;
}

cudaError_t release(void* pointer, const char* what) {
  if (pointer == nullptr) return cudaSuccess;
  const Block block = forget(pointer);
  if (block.kind == MemoryKind::kUnknown) {
    std::fprintf(stderr, "fake CUDA: %s of an unknown pointer %p\n", what, pointer);
    return failed(cudaErrorInvalidValue);
  }
  if (block.kind != MemoryKind::kRegistered) ::munmap(pointer, block.mapped);
  return cudaSuccess;
}

}  // namespace

bool Block::holds(const void* at, std::size_t count) const {
  return address(at) >= begin && address(at) + count <= begin + bytes;
}

thread_local bool thread_is_bound = false;

void begin_context(int device) {
  thread_is_bound = true;
  const std::lock_guard lock(memory().mutex);
  use_of(memory(), device);
}

bool thread_has_context() { return thread_is_bound; }

bool has_context(int device) {
  const std::lock_guard lock(memory().mutex);
  return memory().use.contains(device);
}

Block find_block(const void* pointer) {
  const std::lock_guard lock(memory().mutex);
  auto at = memory().blocks.upper_bound(address(pointer));
  if (at == memory().blocks.begin()) return {};
  --at;
  return at->second.holds(pointer, 1) ? at->second : Block{};
}

MemoryUse device_memory_use() {
  const std::lock_guard lock(memory().mutex);
  MemoryUse most;
  for (const auto& [device, use] : memory().use) {
    most.used = std::max(most.used, use.used);
    most.peak = std::max(most.peak, use.peak);
  }
  return most;
}

}  // namespace fake_cuda

using fake_cuda::Block;
using fake_cuda::MemoryKind;

extern "C" {

cudaError_t cudaMalloc(void** out, std::size_t bytes) {
  fake_cuda::count("cudaMalloc", bytes);
  return fake_cuda::allocate(out, bytes, MemoryKind::kDevice);
}

cudaError_t cudaMallocManaged(void** out, std::size_t bytes, unsigned) {
  fake_cuda::count("cudaMallocManaged", bytes);
  return fake_cuda::allocate(out, bytes, MemoryKind::kManaged);
}

cudaError_t cudaMallocAsync(void** out, std::size_t bytes, cudaStream_t) {
  return cudaMalloc(out, bytes);
}

cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  fake_cuda::count("cudaFree");
  fake_cuda::count_host_sync("cudaFree");
  fake_cuda::wait_for_device(fake_cuda::current_device());
  FAKE_CUDA_RETURN_IF_STICKY();
  return fake_cuda::release(pointer, "cudaFree");
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  fake_cuda::submit(stream, [pointer] { fake_cuda::release(pointer, "cudaFreeAsync"); });
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** out, std::size_t bytes, unsigned) {
  FAKE_CUDA_RETURN_IF_STICKY();
  fake_cuda::count("cudaHostAlloc", bytes);
  fake_cuda::begin_context(fake_cuda::current_device());
  const std::size_t mapped = fake_cuda::round_up(std::max<std::size_t>(bytes, 1), fake_cuda::kPage);
  *out = fake_cuda::map_pages(mapped);
  if (*out == nullptr) return fake_cuda::failed(cudaErrorMemoryAllocation);
  fake_cuda::remember(
      {fake_cuda::address(*out), bytes, mapped, fake_cuda::current_device(), MemoryKind::kPinned});
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** out, std::size_t bytes) { return cudaHostAlloc(out, bytes, 0); }

cudaError_t cudaFreeHost(void* pointer) {
  fake_cuda::count("cudaFreeHost");
  return fake_cuda::release(pointer, "cudaFreeHost");
}

cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned) {
  FAKE_CUDA_RETURN_IF_STICKY();
  fake_cuda::count("cudaHostRegister", bytes);
  fake_cuda::begin_context(fake_cuda::current_device());
  if (fake_cuda::find_block(pointer).kind != MemoryKind::kUnknown)
    return fake_cuda::failed(cudaErrorHostMemoryAlreadyRegistered);
  fake_cuda::remember({fake_cuda::address(pointer), bytes, bytes, fake_cuda::current_device(),
                       MemoryKind::kRegistered});
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) {
  fake_cuda::count("cudaHostUnregister");
  const Block block = fake_cuda::find_block(pointer);
  if (block.kind != MemoryKind::kRegistered || block.begin != fake_cuda::address(pointer))
    return fake_cuda::failed(cudaErrorHostMemoryNotRegistered);
  fake_cuda::forget(pointer);
  return cudaSuccess;
}

int fakecuda_thread_has_context() { return fake_cuda::thread_has_context() ? 1 : 0; }
int fakecuda_has_context(int device) { return fake_cuda::has_context(device) ? 1 : 0; }

int fakecuda_take_memory(int device, uint64_t bytes) {
  if (!fake_cuda::planned_to_fail() && fake_cuda::reserve(device, bytes)) return 1;
  fake_cuda::count("out_of_memory", bytes);
  return 0;
}
void fakecuda_give_memory_back(int device, uint64_t bytes) {
  const std::lock_guard lock(fake_cuda::memory().mutex);
  fake_cuda::use_of(fake_cuda::memory(), device).used -= bytes;
}

void fakecuda_remember_range(void* begin, uint64_t bytes) {
  constexpr std::size_t kCountedElsewhere = 0;
  fake_cuda::remember({fake_cuda::address(begin), bytes, kCountedElsewhere,
                       fake_cuda::current_device(), MemoryKind::kDevice});
}
void fakecuda_forget_range(void* begin) { fake_cuda::forget(begin); }

cudaError_t cudaHostGetDevicePointer(void** out, void* pointer, unsigned) {
  *out = pointer;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* pointer) {
  *out = {};
  const Block block = fake_cuda::find_block(pointer);
  const bool known = block.kind != MemoryKind::kUnknown;
  switch (block.kind) {
    case MemoryKind::kDevice:
      out->type = cudaMemoryTypeDevice;
      break;
    case MemoryKind::kManaged:
      out->type = cudaMemoryTypeManaged;
      break;
    case MemoryKind::kUnknown:
      out->type = cudaMemoryTypeUnregistered;
      break;
    case MemoryKind::kPinned:
    case MemoryKind::kRegistered:
      out->type = cudaMemoryTypeHost;
      break;
  }
  out->device = known ? block.device : -2;
  if (known) out->devicePointer = const_cast<void*>(pointer);
  if (known && block.kind != MemoryKind::kDevice) out->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::lock_guard lock(fake_cuda::memory().mutex);
  *total = fake_cuda::settings().memory_bytes;
  const auto used = fake_cuda::use_of(fake_cuda::memory(), fake_cuda::current_device()).used;
  *free = *total - std::min<std::size_t>(*total, used);
  return cudaSuccess;
}

// The allocator asks for pools even where it does not use them.
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = reinterpret_cast<cudaMemPool_t>(0x1000);
  return cudaSuccess;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) {
  std::memset(value, 0, sizeof(uint64_t));
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, std::size_t) {
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) { return cudaSuccess; }
}
