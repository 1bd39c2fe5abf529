#include "trainer/app/plan/memory_estimate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string_view>

#include "trainer/app/plan/parallel_plan.h"
#include "trainer/config/config.h"
#include "trainer/metrics/text.h"
#include "trainer/parallel/device/cuda_module.h"

namespace ddp::train {
namespace {

/// The number after `key` in a file of the kernel, the first without one.
std::optional<int64_t> number_in(const std::string& path, std::string_view key = "") {
  std::ifstream file(path);
  std::string word;
  while (word != key && file >> word) {
  }
  int64_t value = 0;
  if (!(file >> value)) return std::nullopt;  // "max", or no such file
  return value;
}

int64_t bytes_in(const std::string& path, std::string_view key) {
  constexpr int64_t kBytesPerKiB = 1024;
  return number_in(path, key).value_or(0) * kBytesPerKiB;
}

/// What `ulimit -v` leaves.
int64_t left_by_limit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return INT64_MAX;
  const auto most = static_cast<int64_t>(limit.rlim_cur);
  return std::max<int64_t>(0, most - bytes_in("/proc/self/status", "VmSize:"));
}

/// What the limits of this process's cgroup and of those above it leave, of v1 and v2.
int64_t left_by_cgroups(const std::string& root) {
  int64_t left = INT64_MAX;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const bool v2 = line.starts_with("0::/");
    if (!v2 && line.find(":memory:/") == std::string::npos) continue;
    const std::string base = root + "/sys/fs/cgroup" + (v2 ? "" : "/memory");
    std::string path = line.substr(line.find(":/") + 1);
    for (bool more = true; more;) {
      const auto limit = number_in(base + path + (v2 ? "/memory.max" : "/memory.limit_in_bytes"));
      const auto used =
          number_in(base + path + (v2 ? "/memory.current" : "/memory.usage_in_bytes"));
      // Pages of files that are read again when needed count as used.
      const auto cache =
          number_in(base + path + "/memory.stat", v2 ? "inactive_file" : "total_inactive_file");
      if (limit && used)
        left = std::min(left, std::max<int64_t>(0, *limit - *used + cache.value_or(0)));
      more = !path.empty();
      path.resize(more ? path.rfind('/') : 0);
    }
  }
  return left;
}

/// Bytes that a trainer takes besides what it computes with: libraries, kernels, threads.
int64_t program_bytes(bool cuda) {
  // Measured: what the first steps add for kernels, threads and buffers.
  constexpr int64_t kStepsOnCpu = 40'000'000;
  constexpr int64_t kStepsOnCuda = 400'000'000;
  return bytes_in("/proc/self/status", "VmRSS:") + (cuda ? kStepsOnCuda : kStepsOnCpu);
}

}  // namespace

int64_t available_memory_bytes(const std::string& root) {
  return std::min(
      {bytes_in(root + "/proc/meminfo", "MemAvailable:"), left_by_limit(), left_by_cgroups(root)});
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

std::string memory_advice(const Config& config, const TaskCost& task, const ComputePlace& place,
                          int device_index) {
  const auto estimate = [&](const Config& changed) {
    return estimate_memory(changed, task, place, device_index);
  };
  const MemoryEstimate now = estimate(config);
  std::vector<std::string> ways;
  bool enough = false;
  const auto suggest = [&](const Config& changed, std::string_view change) {
    const MemoryEstimate then = estimate(changed);
    if (then.device_bytes >= now.device_bytes) return;
    ways.push_back(fmt::format("{}{} ({}{})", ways.empty() ? "set " : "", change,
                               in_bytes(then.device_bytes), then.fits() ? ", fits" : ""));
    enough = enough || then.fits();
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
  if (!enough) ways.emplace_back("take a smaller model");
  return fmt::format("{}", fmt::join(ways, ", or "));
}

}  // namespace ddp::train
