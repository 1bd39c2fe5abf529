#include "trainer/app/plan/machine_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

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

}  // namespace

int64_t available_memory_bytes() {
  const std::string cgroup = "/sys/fs/cgroup/";
  const auto limit = first_number(cgroup + "memory.max");
  const auto used = first_number(cgroup + "memory.current");
  const int64_t available = std::min(mem_available(), left_by_limit().value_or(INT64_MAX));
  return limit && used ? std::min(available, std::max<int64_t>(0, *limit - *used)) : available;
}

int64_t program_bytes(bool cuda) {
  // Measured: what the first steps add for kernels, threads and buffers.
  constexpr int64_t kStepsOnCpu = 40'000'000;
  constexpr int64_t kStepsOnCuda = 400'000'000;
  return own_memory().resident + (cuda ? kStepsOnCuda : kStepsOnCpu);
}

}  // namespace ddp::train
