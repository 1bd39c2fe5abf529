// Sets of CPUs.
#pragma once

#include <string>
#include <vector>

namespace ddp::launch {

/// Parses the kernel's format, "0-3,8"; skips malformed parts.
std::vector<int> parse_cpu_list(const std::string& text);
/// Returns the CPU affinity of the calling thread.
std::vector<int> cpus_of_this_thread();

}  // namespace ddp::launch
