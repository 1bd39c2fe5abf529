// Device memory is host memory that remembers what it stands for.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace fake_cuda {

enum class MemoryKind { kUnknown, kDevice, kPinned, kRegistered, kManaged };

/// An allocation, or part of the program's own memory that was registered.
struct Block {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;   ///< As asked for.
  std::size_t mapped = 0;  ///< As counted against the device: rounded up to 2 MiB.
  int device = 0;
  MemoryKind kind = MemoryKind::kUnknown;

  bool on_device() const { return kind == MemoryKind::kDevice || kind == MemoryKind::kManaged; }
  /// Whether `bytes` from `at` lie within it.
  bool holds(const void* at, std::size_t bytes) const;
};

struct MemoryUse {
  uint64_t used = 0;  ///< Bytes that the process holds on its fullest device, its context included.
  uint64_t peak = 0;
};

/// The block that `pointer` points into; kUnknown when there is none: pageable host memory.
Block find_block(const void* pointer);

/// What every process's context takes of a device before it has allocated anything.
inline constexpr std::size_t kContextBytes = 500ULL << 20;

/// As CUDA does on the first call that needs a device. Counted as "context". Makes it the context
/// of the calling thread, without which the driver's own functions fail.
void begin_context(int device);
bool has_context(int device);
bool thread_has_context();

MemoryUse device_memory_use();

}  // namespace fake_cuda
