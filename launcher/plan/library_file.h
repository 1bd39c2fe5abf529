// Checks a shared library by its ELF header alone.
#pragma once

#include <filesystem>
#include <string>

namespace ddp::launch {

/// Returns what is wrong with a shared library ("is empty", "is missing", "is cut off", ...), or ""
/// if the dynamic loader would map it. Does not detect damage in the middle of the file.
std::string library_fault(const std::filesystem::path& file);

}  // namespace ddp::launch
