#include "trainer/parallel/device/device_share.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "trainer/parallel/device/cuda_module.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/parallel_for.h"

namespace ddp::train {
namespace {

constexpr int64_t kMiB = 1024L * 1024;

int own_cpus() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

// OMP_NUM_THREADS, which a launcher sets for the ranks of a node, still counts where it is less.
// The ranks are not bound to cores: the kernel spreads as many threads as there are cores on its
// own.
void share_cores(const DistributedConfig& config) {
  static const int at_start = at::get_num_threads();
  const int share = config.ranks_per_device
                        ? std::max(1, own_cpus() / static_cast<int>(*config.ranks_per_device))
                        : at_start;
  const int threads = std::min(at_start, share);
  if (threads != at::get_num_threads()) at::set_num_threads(threads);
}

/// Private writable memory of this process, what RLIMIT_DATA is compared with.
int64_t data_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    constexpr std::string_view kKey = "VmData:";
    if (line.starts_with(kKey)) return std::stoll(line.substr(kKey.size())) * 1024;
  }
  return 0;
}

bool may_still_map(std::size_t bytes) {
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return false;
  ::munmap(mapped, bytes);
  return true;
}

// The stacks of these threads do not count as the model's memory: they precede the limit.
void start_threads() {
  const int threads = at::get_num_threads();
  parallel_for(threads, 1, threads, [](int64_t, int64_t) {});
}

// RLIMIT_DATA is what the kernel enforces everywhere and for everybody: a cgroup needs delegated
// rights, and RLIMIT_AS would count mapped libraries, token files and reserved addresses.
void limit_process(std::optional<int64_t> bytes) {
  static const rlim_t at_start = [] {
    rlimit limit{};
    ::getrlimit(RLIMIT_DATA, &limit);
    return limit.rlim_cur;
  }();
  rlimit limit{};
  ::getrlimit(RLIMIT_DATA, &limit);
  limit.rlim_cur = at_start;
  if (bytes) {
    start_threads();
    limit.rlim_cur = std::min(at_start, static_cast<rlim_t>(data_bytes() + *bytes));
  }
  if (::setrlimit(RLIMIT_DATA, &limit) != 0) {
    throw UserError(fmt::format("distributed_config.memory_limit_mb: cannot set RLIMIT_DATA: {}",
                                std::strerror(errno)));
  }
  // All of it at once, as other threads may give some back meanwhile.
  if (bytes && may_still_map(static_cast<std::size_t>(limit.rlim_cur))) {
    throw UserError(
        "distributed_config.memory_limit_mb: this kernel does not enforce RLIMIT_DATA; leave the "
        "key out, or limit the container's memory");
  }
}

void limit_gpu(const DistributedConfig& config, int index, std::optional<int64_t> bytes) {
  static bool limited = false;
  if (!bytes && !limited) return;
  CudaModule& cuda = *loaded_cuda_module();
  const int64_t total = cuda.total_memory_bytes(index);
  const int64_t ranks = config.ranks_per_device.value_or(1);
  if (bytes && *bytes > total / ranks) {
    throw UserError(fmt::format(
        "distributed_config.memory_limit_mb={}: the GPU has {} MiB for {} rank{}; lower it to {}",
        *bytes / kMiB, total / kMiB, ranks, ranks == 1 ? "" : "s", total / ranks / kMiB));
  }
  cuda.limit_memory(index, bytes.value_or(total));
  limited = bytes.has_value();
}

}  // namespace

std::optional<int64_t> memory_limit_bytes(const DistributedConfig& config, torch::Device device) {
  if (config.memory_limit_mb) return *config.memory_limit_mb * kMiB;
  const int64_t ranks = config.ranks_per_device.value_or(1);
  if (!device.is_cuda() || ranks == 1) return std::nullopt;
  return loaded_cuda_module()->total_memory_bytes(device.index()) / ranks;
}

std::string memory_limit_note(const DistributedConfig& config, torch::Device device) {
  const auto limit = memory_limit_bytes(config, device);
  if (!limit) return "";
  const auto key = config.memory_limit_mb
                       ? fmt::format("memory_limit_mb={}", *config.memory_limit_mb)
                       : fmt::format("ranks_per_device={}", config.ranks_per_device.value_or(1));
  return fmt::format(" with the limit of {} MiB by distributed_config.{}", *limit / kMiB, key);
}

void hold_to_share(const DistributedConfig& config, const DevicePlan& plan) {
  const auto limit = memory_limit_bytes(config, plan.device);
  if (plan.device.is_cpu()) {
    share_cores(config);
    return limit_process(limit);
  }
  limit_gpu(config, plan.device.index(), limit);
}

std::string share_text(const DistributedConfig& config, const DevicePlan& plan) {
  if (!config.ranks_per_device && !config.memory_limit_mb) return "";
  const auto limit = memory_limit_bytes(config, plan.device);
  const std::string ranks =
      config.ranks_per_device
          ? fmt::format("up to {} ranks on {}", *config.ranks_per_device,
                        plan.device.is_cuda() ? "a GPU" : "the CPUs of a machine")
          : "no limit on the ranks of a device";
  const std::string cores = plan.device.is_cuda()
                                ? ""
                                : fmt::format(", {} thread{}", at::get_num_threads(),
                                              at::get_num_threads() == 1 ? "" : "s");
  return ranks + cores +
         (limit ? fmt::format(", {} MiB of memory for each", *limit / kMiB)
                : std::string(", memory without a limit"));
}

}  // namespace ddp::train
