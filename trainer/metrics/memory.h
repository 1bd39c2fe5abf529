// What a process holds in memory, as the kernel counts it.
#pragma once

#include <cstdint>

namespace ddp::train {

struct MemoryUse {
  int64_t resident = 0;  ///< Bytes now; 0 where /proc cannot be read.
  int64_t peak = 0;      ///< The most there has been.
};

/// This process's VmRSS and VmHWM, from proc(5)'s status: host memory only, not a GPU's.
MemoryUse memory_use();

}  // namespace ddp::train
