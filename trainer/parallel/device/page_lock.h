// Page-locked host memory, to which a GPU copies asynchronously.
#pragma once

#include <cstddef>
#include <memory>

namespace ddp::train {

class CudaModule;

/// Page-locks memory owned elsewhere, to the byte: torch's own pinned allocations are rounded up to
/// a power of two. With a null module, or if locking fails (a container's limit), the memory stays
/// as it is, and copies to it block on the GPU.
class PageLock {
 public:
  PageLock(CudaModule* module, void* memory, std::size_t bytes);
  ~PageLock();
  PageLock(const PageLock&) = delete;
  PageLock& operator=(const PageLock&) = delete;

  bool on() const { return on_; }

 private:
  CudaModule* module_;
  void* memory_;
  bool on_;
};

/// `bytes` of memory mapped from the system, unmapped on destruction.
class MappedMemory {
 public:
  /// Throws std::bad_alloc.
  explicit MappedMemory(std::size_t bytes);
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
  std::size_t bytes_;
};

}  // namespace ddp::train
