// What a rank's memory is needed for, what there is, and what would need less.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/task/task_cost.h"

namespace ddp::train {

struct Config;

/// Bytes that programs can still take: MemAvailable, or less where a cgroup or ulimit -v allows
/// less. `root` is prepended to /proc and /sys; empty: the real ones.
int64_t available_memory_bytes(const std::string& root = "");

struct MemoryEstimate {
  std::vector<MemoryItem> items;  ///< With the program itself.
  int64_t device_bytes = 0;       ///< Needed by the largest rank, of the memory in available_bytes.
  int64_t available_bytes = 0;
  int64_t ranks_sharing = 1;  ///< That memory.
  bool cuda = false;

  int64_t needed_bytes() const { return device_bytes * ranks_sharing; }
  bool fits() const { return needed_bytes() <= available_bytes; }
};

/// `device_index`: of the GPU, where `place` has one.
MemoryEstimate estimate_memory(const Config& config, const TaskCost& task,
                               const ComputePlace& place, int device_index);

/// "set gpt_config.activation_checkpointing=true (1.20GB, fits), or ...": what a rank would need
/// with savers, and with a micro-batch halved until it fits, or is 1.
std::string memory_advice(const Config& config, const TaskCost& task, const ComputePlace& place,
                          int device_index);

}  // namespace ddp::train
