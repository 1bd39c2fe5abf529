// Expands Slurm's notation for many host names. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddp::launch {

/// "a[1-3,07],b-x" -> a1, a2, a3, a07, b-x. Ranges keep the width of their first number; among
/// several brackets in a name the last varies fastest. Throws LaunchError (2) that begins with
/// `origin`, e.g. "SLURM_JOB_NODELIST".
std::vector<std::string> expand_node_list(std::string_view origin, std::string_view text);

}  // namespace ddp::launch
