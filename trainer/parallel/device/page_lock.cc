#include "trainer/parallel/device/page_lock.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "trainer/parallel/device/cuda_module.h"

namespace ddp::train {

PageLock::PageLock(CudaModule* module, void* memory, std::size_t bytes)
    : module_(module),
      memory_(memory),
      on_(module != nullptr && bytes > 0 && module->page_lock(memory, bytes)) {}

PageLock::~PageLock() {
  if (on_) module_->page_unlock(memory_);
}

MappedMemory::MappedMemory(std::size_t bytes) : bytes_(std::max<std::size_t>(1, bytes)) {
  void* const mapped =
      ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(mapped);
}

MappedMemory::~MappedMemory() { ::munmap(data_, bytes_); }

}  // namespace ddp::train
