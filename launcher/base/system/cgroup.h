// This process's cgroup and its CPU quota, of cgroup v1 and v2.
#pragma once

#include <optional>
#include <string>

namespace ddp::launch {

/// Returns the path of this process's cgroup in v1's hierarchy of `controller`, or in v2's if it is
/// empty; "" if there is none. `root` is prepended to /proc and /sys; empty: the real ones.
std::string cgroup_of_self(const std::string& root, const std::string& controller);

/// Returns how many CPUs the quotas of this cgroup and of those above it allow, rounded down, at
/// least 1; nullopt without a quota.
std::optional<int> cpu_quota(const std::string& root);

}  // namespace ddp::launch
