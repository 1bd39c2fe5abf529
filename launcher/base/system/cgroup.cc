#include "launcher/base/system/cgroup.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

namespace ddp::launch {
namespace {

// CPUs that one cgroup may use; 0: no quota. v2 writes both numbers, or max, into one file.
double cpus_of(const std::string& cgroup) {
  double quota = 0, period = 0;
  std::ifstream(cgroup + "/cpu.max") >> quota >> period;
  std::ifstream(cgroup + "/cpu.cfs_quota_us") >> quota;
  std::ifstream(cgroup + "/cpu.cfs_period_us") >> period;
  return quota > 0 && period > 0 ? quota / period : 0;
}

}  // namespace

std::vector<std::string> cgroups_of_self(const std::string& root, const std::string& controller) {
  std::string path;
  std::ifstream stream(root + "/proc/self/cgroup");
  for (std::string line; path.empty() && std::getline(stream, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string all = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    if (controller.empty() ? all == ",," : all.find("," + controller + ",") != std::string::npos)
      path = line.substr(second + 1);
  }
  if (path == "/") path.clear();
  const std::string base = root + "/sys/fs/cgroup" + (controller.empty() ? "" : "/") + controller;
  std::vector<std::string> cgroups;
  for (auto end = path.size(); end != std::string::npos;
       end = end > 0 ? path.rfind('/', end - 1) : std::string::npos)
    cgroups.push_back(base + path.substr(0, end));
  return cgroups;
}

std::optional<int> cpu_quota(const std::string& root) {
  double least = 0;
  for (const char* controller : {"", "cpu"}) {
    for (const std::string& cgroup : cgroups_of_self(root, controller)) {
      const double cpus = cpus_of(cgroup);
      if (cpus > 0 && (least == 0 || cpus < least)) least = cpus;
    }
  }
  if (least == 0) return std::nullopt;
  return std::max(1, static_cast<int>(least));
}

std::string reached_pids_limit(const std::string& root) {
  for (const char* controller : {"", "pids"}) {
    for (const std::string& cgroup : cgroups_of_self(root, controller)) {
      long most = 0, now = 0;
      std::ifstream limit(cgroup + "/pids.max"), current(cgroup + "/pids.current");
      if (limit >> most && current >> now && now >= most)
        return fmt::format("{}/pids.max (now {})", cgroup, most);
    }
  }
  return "";
}

}  // namespace ddp::launch
