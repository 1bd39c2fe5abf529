#include "launcher/base/system/cgroup.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

namespace ddp::launch {
namespace {

// CPUs that one cgroup may use; 0: no quota. v2 writes both numbers, or max, into one file.
double cpus_of(const std::string& v2, const std::string& v1) {
  double quota = 0, period = 0;
  std::ifstream both(v2 + "/cpu.max");
  if (both.is_open()) {
    both >> quota >> period;
  } else {
    std::ifstream(v1 + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(v1 + "/cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

}  // namespace

std::string cgroup_of_self(const std::string& root, const std::string& controller) {
  std::ifstream stream(root + "/proc/self/cgroup");
  for (std::string line; std::getline(stream, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string all = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    if (controller.empty() ? all == ",," : all.find("," + controller + ",") != std::string::npos)
      return line.substr(second + 1);
  }
  return "";
}

// Upwards to the root: a container may see its cgroup there, under the host's path.
std::optional<int> cpu_quota(const std::string& root) {
  const std::string base = root + "/sys/fs/cgroup";
  std::string v2 = cgroup_of_self(root, ""), v1 = cgroup_of_self(root, "cpu");
  double least = 0;
  for (bool more = true; more;) {
    const double cpus = cpus_of(base + v2, base + "/cpu" + v1);
    if (cpus > 0 && (least == 0 || cpus < least)) least = cpus;
    more = !v2.empty() || !v1.empty();
    for (std::string* path : {&v2, &v1})
      path->resize(path->find('/') == std::string::npos ? 0 : path->rfind('/'));
  }
  if (least == 0) return std::nullopt;
  return std::max(1, static_cast<int>(least));
}

}  // namespace ddp::launch
