// Sets of CPUs.
#pragma once

#include <string>
#include <vector>

namespace ddp::launch {

/// "0-3,8", the kernel's format; malformed parts are skipped.
std::vector<int> parse_cpu_list(const std::string& text);
/// CPUs of the calling thread.
std::vector<int> cpus_of_this_thread();

}  // namespace ddp::launch
