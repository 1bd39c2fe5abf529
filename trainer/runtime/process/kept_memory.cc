#include "trainer/runtime/process/kept_memory.h"

#include <malloc.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace ddp::train {

void keep_freed_memory() noexcept {
  constexpr int kLargestOfHeap = 32 << 20;  // glibc's own upper limit
  constexpr int kMostUnused = 512 << 20;
  ::mallopt(M_MMAP_THRESHOLD, kLargestOfHeap);
  ::mallopt(M_TRIM_THRESHOLD, kMostUnused);
}

void keep_memory(std::size_t bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20U;
  constexpr std::size_t kBlock = 8 * kHugePage;
  keep_freed_memory();
  std::vector<std::unique_ptr<void, decltype(&std::free)>> blocks;
  for (std::size_t got = 0; got < bytes; got += kBlock) {
    void* const block = std::aligned_alloc(kHugePage, kBlock);
    if (block == nullptr) return;
    blocks.emplace_back(block, &std::free);
    ::madvise(block, kBlock, MADV_HUGEPAGE);  // a wish
    std::memset(block, 0, kBlock);
  }
}

}  // namespace ddp::train
