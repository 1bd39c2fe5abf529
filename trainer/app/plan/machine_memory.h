// The memory of this machine and of this program.
#pragma once

#include <cstdint>

namespace ddp::train {

/// Bytes that programs can still take: MemAvailable, or less where a cgroup or ulimit -v allows
/// less.
int64_t available_memory_bytes();

/// Bytes that a trainer takes besides what it computes with: libraries, kernels, threads.
int64_t program_bytes(bool cuda);

}  // namespace ddp::train
