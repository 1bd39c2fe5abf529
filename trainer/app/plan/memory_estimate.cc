#include "trainer/app/plan/memory_estimate.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <utility>

#include "trainer/app/plan/parallel_plan.h"
#include "trainer/config/config.h"
#include "trainer/parallel/device/cuda_module.h"

namespace ddp::train {
namespace {

constexpr int64_t kBytesPerKiB = 1024;

std::optional<int64_t> first_number(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (!(file >> value)) return std::nullopt;  // "max", or no such file
  return value;
}

int64_t mem_available() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    constexpr std::string_view kKey = "MemAvailable:";
    if (line.starts_with(kKey)) return std::stoll(line.substr(kKey.size())) * kBytesPerKiB;
  }
  return 0;
}

struct OwnMemory {
  int64_t mapped = 0;
  int64_t resident = 0;
};

OwnMemory own_memory() {
  std::ifstream file("/proc/self/statm");
  OwnMemory pages;
  file >> pages.mapped >> pages.resident;
  const int64_t bytes = ::sysconf(_SC_PAGESIZE);
  return {pages.mapped * bytes, pages.resident * bytes};
}

/// What `ulimit -v` leaves.
std::optional<int64_t> left_by_limit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return std::max<int64_t>(0, static_cast<int64_t>(limit.rlim_cur) - own_memory().mapped);
}

/// Bytes that a trainer takes besides what it computes with: libraries, kernels, threads.
int64_t program_bytes(bool cuda) {
  // Measured: what the first steps add for kernels, threads and buffers.
  constexpr int64_t kStepsOnCpu = 40'000'000;
  constexpr int64_t kStepsOnCuda = 400'000'000;
  return own_memory().resident + (cuda ? kStepsOnCuda : kStepsOnCpu);
}

}  // namespace

int64_t available_memory_bytes() {
  const std::string cgroup = "/sys/fs/cgroup/";
  const auto limit = first_number(cgroup + "memory.max");
  const auto used = first_number(cgroup + "memory.current");
  const int64_t available = std::min(mem_available(), left_by_limit().value_or(INT64_MAX));
  return limit && used ? std::min(available, std::max<int64_t>(0, *limit - *used)) : available;
}

MemoryEstimate estimate_memory(const Config& config, const TaskCost& task,
                               const ComputePlace& place, int device_index) {
  MemoryEstimate result;
  result.cuda = place.cuda;
  result.items = items_of_largest_rank(config, task, place);
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

std::vector<MemorySaving> memory_savings(const Config& config, const TaskCost& task,
                                         const ComputePlace& place, int device_index) {
  const auto estimate = [&](const Config& changed) {
    return estimate_memory(changed, task, place, device_index);
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
