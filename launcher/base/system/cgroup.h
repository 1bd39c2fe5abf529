// This process's cgroup and its limits, of cgroup v1 and v2.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ddp::launch {

/// Returns the folder of this process's cgroup in v1's hierarchy of `controller`, or in v2's if it
/// is empty, then those of the cgroups above it up to the root: a container may see its own there,
/// under the host's path. `root` is prepended to /proc and /sys; empty: the real ones.
std::vector<std::string> cgroups_of_self(const std::string& root, const std::string& controller);

/// Returns how many CPUs the quotas of this cgroup and of those above it allow, rounded down, at
/// least 1; nullopt without a quota.
std::optional<int> cpu_quota(const std::string& root);

/// Returns "<file> (now <limit>)" of a cgroup that has reached its process limit; "" if none has.
std::string reached_pids_limit(const std::string& root = "");

}  // namespace ddp::launch
