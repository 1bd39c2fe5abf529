// Was it the kernel's out-of-memory killer? Its counters tell, before and after.
#pragma once

#include <optional>
#include <string>

namespace ddp::launch {

/// Processes that the OOM killer has ended so far; nullopt: this kernel does not say.
struct OomCounts {
  std::optional<long> cgroup;   // in the cgroup of this process (v2 memory.events, v1 oom_control)
  std::optional<long> machine;  // /proc/vmstat
  std::string limit;            // of the cgroup, as in "512 MiB"; empty: none

  /// `root` is put before /proc and /sys; empty: the real ones.
  static OomCounts read(const std::string& root = "");
};

/// What to tell of a worker that died by SIGKILL between the two readings; empty when the kernel
/// does not say.
std::string oom_verdict(const OomCounts& before, const OomCounts& after);

}  // namespace ddp::launch
