// A process's memory, from the kernel's accounting.
#pragma once

#include <cstdint>

namespace ddp::train {

struct MemoryUse {
  int64_t resident = 0;  ///< Bytes now; 0 if /proc cannot be read.
  int64_t peak = 0;      ///< The maximum so far.
};

/// This process's VmRSS and VmHWM, from proc(5)'s status: host memory only, not a GPU's.
MemoryUse memory_use();

}  // namespace ddp::train
