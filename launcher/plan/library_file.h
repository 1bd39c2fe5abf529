// Whether a shared library is worth a try, from its ELF header alone.
#pragma once

#include <filesystem>
#include <string>

namespace ddp::launch {

/// "is empty", "is missing", "is cut off", ...; empty: the dynamic loader would map the file into a
/// process of this machine. Damage in the middle of it is not seen.
std::string library_fault(const std::filesystem::path& file);

}  // namespace ddp::launch
