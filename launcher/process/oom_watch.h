// Detects the kernel's OOM killer by comparing its counters before and after.
#pragma once

#include <optional>
#include <string>

namespace ddp::launch {

/// Numbers of processes killed by the OOM killer so far; nullopt: not reported by this kernel.
struct OomCounts {
  /// In this process's cgroup: v2 memory.events.local or, including sub-cgroups, memory.events; v1
  /// oom_control.
  std::optional<long> cgroup;
  std::optional<long> machine;  // /proc/vmstat
  std::string limit;            // the least of the cgroup and those above, e.g. "512 MiB"

  /// `root` is prepended to /proc and /sys; empty: the real ones.
  static OomCounts read(const std::string& root = "");
};

/// "" unless the OOM killer killed something in this cgroup between the two readings.
std::string oom_kills_between(const OomCounts& before, const OomCounts& after);

/// Explains a SIGKILL of a worker between the two readings; empty if unknown.
std::string oom_verdict(const OomCounts& before, const OomCounts& after);

}  // namespace ddp::launch
