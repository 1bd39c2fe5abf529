// Creates files in folders that other users may write to, such as /tmp.
#pragma once

#include <sys/types.h>

#include <string>

namespace ddp::launch {

/// Applies the umask to `mode`, for files that are created private and opened up afterwards.
mode_t under_umask(mode_t mode);

/// Replaces characters that a file's name cannot have, and shortens it.
std::string safe_file_name(std::string name);

/// Creates `<path>.tmpXXXXXX` for writing, with mode 0644 under the umask, and sets `name` to it. A
/// file or link that someone planted is neither opened nor followed. Returns -1 and sets errno if
/// that fails.
int create_temporary_file(const std::string& path, std::string& name);

}  // namespace ddp::launch
