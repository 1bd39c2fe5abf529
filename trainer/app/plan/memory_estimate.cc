#include "trainer/app/plan/memory_estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trainer/app/plan/machine_memory.h"
#include "trainer/app/plan/parallel_plan.h"
#include "trainer/parallel/device/cuda_module.h"

namespace ddp::train {
MemoryEstimate estimate_memory(const Config& config, const MemoryModel& model,
                               const ComputePlace& place, int device_index) {
  MemoryEstimate result;
  result.cuda = place.cuda;
  result.items = items_of_largest_rank(model, config, place);
  result.items.push_back({"program", program_bytes(place.cuda), MemoryKind::kHost});
  result.device_bytes = bytes_of_rank(result.items, place.cuda);
  result.available_bytes = place.cuda ? loaded_cuda_module()->available_memory_bytes(device_index)
                                      : available_memory_bytes();
  result.ranks_sharing = place.cuda ? 1 : place.world_size;
  if (const auto& limit = config.distributed.memory_limit_mb) {
    const int64_t of_rank = *limit * 1024 * 1024 + (place.cuda ? 0 : program_bytes(false));
    result.available_bytes = std::min(result.available_bytes, of_rank * result.ranks_sharing);
  }
  return result;
}

std::vector<MemorySaving> memory_savings(const Config& config, const MemoryModel& model,
                                         const ComputePlace& place, int device_index) {
  const auto estimate = [&](const Config& changed) {
    return estimate_memory(changed, model, place, device_index);
  };
  const MemoryEstimate now = estimate(config);
  std::vector<MemorySaving> savings;
  const auto suggest = [&](const Config& changed, std::string change) {
    MemoryEstimate then = estimate(changed);
    if (then.device_bytes < now.device_bytes)
      savings.push_back({std::move(change), std::move(then)});
  };
  for (const MemorySaver& saver : savers_of(config)) {
    Config changed = config;
    saver.apply(changed);
    suggest(changed, saver.change);
  }
  Config changed = config;
  while (changed.trainer.batch_size > 1) {
    changed.trainer.batch_size = (changed.trainer.batch_size + 1) / 2;
    if (estimate(changed).fits()) break;
  }
  suggest(changed, fmt::format("trainer_config.batch_size={} with more grad_accumulation_steps",
                               changed.trainer.batch_size));
  return savings;
}

}  // namespace ddp::train
