#include "trainer/metrics/memory.h"

#include <fstream>
#include <string>

namespace ddp::train {

MemoryUse memory_use() {
  constexpr int64_t kKib = 1024;
  MemoryUse use;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "VmRSS:" && word != "VmHWM:") continue;
    int64_t kib = 0;
    status >> kib;
    (word == "VmRSS:" ? use.resident : use.peak) = kKib * kib;
  }
  return use;
}

}  // namespace ddp::train
