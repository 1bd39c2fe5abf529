// A rank's memory as a function of the configuration, of which a planner tries several. Does not
// use LibTorch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/model/cost/training_cost.h"

namespace ddp::train {

/// The items of a rank that trains by a configuration, as Task::memory_items() lists them.
using MemoryModel = std::function<std::vector<MemoryItem>(const Config&, const ComputePlace&)>;

/// Whether an item is in the limiting memory: the CPU's holds everything, a GPU's only what is
/// computed with.
inline bool counts(const MemoryItem& item, bool cuda) {
  return !cuda || item.kind == MemoryKind::kDevice;
}

/// Bytes in the limiting memory of the rank that needs most.
inline int64_t bytes_of_rank(const std::vector<MemoryItem>& items, bool cuda) {
  int64_t bytes = 0;
  for (const MemoryItem& item : items) bytes += counts(item, cuda) ? item.bytes : 0;
  return bytes;
}

/// The items of the rank that needs most: in a pipeline each stage has its own.
inline std::vector<MemoryItem> items_of_largest_rank(const MemoryModel& model, const Config& config,
                                                     ComputePlace place) {
  std::vector<MemoryItem> largest = model(config, place);
  for (place.stage = 1; place.stage < config.distributed.pipeline; ++place.stage) {
    auto items = model(config, place);
    if (bytes_of_rank(items, place.cuda) > bytes_of_rank(largest, place.cuda))
      largest = std::move(items);
  }
  return largest;
}

/// Micro-batches of the rank that computes most of them in a step.
inline int64_t micro_batches_of_rank(const TrainerConfig& config, int64_t world_size) {
  if (!config.global_batch_size) return config.grad_accumulation_steps;
  const int64_t all = *config.global_batch_size / std::max<int64_t>(1, config.batch_size);
  return std::max<int64_t>(1, (all + world_size - 1) / world_size);
}

}  // namespace ddp::train
