// Finds the modules that trainer loads at run time.
#pragma once

#include <filesystem>

namespace ddp::train {

/// Next to the executable of an installation, or in ../lib of a build tree; empty if in neither.
std::filesystem::path find_module(const char* file);

}  // namespace ddp::train
