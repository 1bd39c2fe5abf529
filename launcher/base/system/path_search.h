// Finds programs in the folders of PATH.
#pragma once

#include <string>

namespace ddp::launch {

bool is_executable_file(const std::string& path);

/// Returns the first executable file of this name in the folders of `path`, a PATH; empty: none.
std::string find_on_path(const std::string& name, const std::string& path);

}  // namespace ddp::launch
