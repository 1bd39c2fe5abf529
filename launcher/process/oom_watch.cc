#include "launcher/process/oom_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "launcher/base/system/cgroup.h"

namespace ddp::launch {
namespace {

// The value of the line "<key> <number>".
std::optional<long> number_after(const std::string& file, const std::string& key) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (line.rfind(key + " ", 0) != 0) continue;
    char* end = nullptr;
    const long number = std::strtol(line.c_str() + key.size(), &end, 10);
    if (end != line.c_str() + key.size()) return number;
  }
  return std::nullopt;
}

// The least of a cgroup and those above it: schedulers limit the job, not its tasks.
std::string limit_text(const std::vector<std::string>& cgroups, const std::string& file) {
  constexpr long long kNoLimit = 1LL << 60;  // cgroup v1 uses a huge number for "none"
  long long least = kNoLimit;
  for (const std::string& cgroup : cgroups) {
    long long bytes = 0;
    if (std::ifstream(cgroup + file) >> bytes) least = std::min(least, bytes);
  }
  return least == kNoLimit ? "" : fmt::format("{} MiB", least >> 20);
}

// "" if it has not risen, as far as is known.
std::string rise_in_cgroup(const OomCounts& before, const OomCounts& after) {
  if (!before.cgroup || !after.cgroup || *after.cgroup <= *before.cgroup) return "";
  return fmt::format("(oom_kill +{} in its cgroup{}{})", *after.cgroup - *before.cgroup,
                     after.limit.empty() ? "" : ", memory limit ", after.limit);
}

}  // namespace

OomCounts OomCounts::read(const std::string& root) {
  OomCounts counts;
  counts.machine = number_after(root + "/proc/vmstat", "oom_kill");
  const auto v2 = cgroups_of_self(root, ""), v1 = cgroups_of_self(root, "memory");
  counts.cgroup = number_after(v2.front() + "/memory.events.local", "oom_kill");
  if (!counts.cgroup) counts.cgroup = number_after(v2.front() + "/memory.events", "oom_kill");
  counts.limit = limit_text(v2, "/memory.max");
  if (!counts.cgroup) {
    counts.cgroup = number_after(v1.front() + "/memory.oom_control", "oom_kill");
    counts.limit = limit_text(v1, "/memory.limit_in_bytes");
  }
  return counts;
}

std::string oom_kills_between(const OomCounts& before, const OomCounts& after) {
  const std::string rise = rise_in_cgroup(before, after);
  return rise.empty() ? ""
                      : "out of memory: the kernel killed a process in this job's cgroup " + rise;
}

std::string oom_verdict(const OomCounts& before, const OomCounts& after) {
  const std::string rise = rise_in_cgroup(before, after);
  if (!rise.empty()) return "out of memory: the kernel killed it " + rise;
  if (!before.machine || !after.machine) return "";
  if (*after.machine > *before.machine) {
    return fmt::format(
        "out of memory: the kernel's OOM killer killed something on this machine (+{})",
        *after.machine - *before.machine);
  }
  return "someone's kill -9: the kernel's OOM killer did not act";
}

}  // namespace ddp::launch
