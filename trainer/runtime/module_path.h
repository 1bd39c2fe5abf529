// Where to find the modules that trainer loads at run time.
#pragma once

#include <filesystem>

namespace ddp::train {

/// Beside the executable in a build tree (../lib) and after `cmake --install` (../lib, ../lib64 or
/// Debian's folder); empty when it is in none of them.
std::filesystem::path find_module(const char* file);

}  // namespace ddp::train
