// Page-locked host memory, to which a GPU copies asynchronously.
#pragma once

#include <cstddef>
#include <memory>

namespace ddp::train {

class CudaModule;

/// Page-locks memory that somebody else owns, to the byte: torch's own pinned allocations take the
/// next power of two. Null module, or memory that cannot be locked (a limit of the container): the
/// memory stays as it is, and copies to it wait for the GPU.
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

/// Memory of `bytes` from the system, given back to it at the end.
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
