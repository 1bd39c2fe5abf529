// Unique names and secrets.
#pragma once

#include <cstddef>
#include <string>

namespace ddp::launch {

/// Random bytes as twice as many hexadecimal digits. Throws LaunchError if the system has none.
std::string random_hex(std::size_t bytes = 8);

}  // namespace ddp::launch
