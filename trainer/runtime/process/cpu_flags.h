#pragma once

#include <string>
#include <string_view>

namespace ddp::train {

/// The extensions of the first CPU in /proc/cpuinfo, between blanks; "" where it lists none.
std::string cpu_flags();

/// Whether `flags`, such as cpu_flags() returns, have the word `flag`.
bool has_flag(std::string_view flags, std::string_view flag);

}  // namespace ddp::train
