// Finds programs in the folders of PATH, and what a folder holds.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ddp::launch {

bool is_executable_file(const std::string& path);

/// Returns the first executable file of this name in the folders of `path`, a PATH; empty: none.
std::string find_on_path(const std::string& name, const std::string& path);

/// Returns the paths of what `folder` holds, in no order; empty if it cannot be read.
std::vector<std::filesystem::path> paths_in(const std::filesystem::path& folder);

}  // namespace ddp::launch
