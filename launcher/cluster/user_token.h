// A secret of the user in the home folder: all nodes have the same one if they share that folder.
#pragma once

#include <string>

#include "launcher/base/command.h"

namespace ddp::launch {

/// $XDG_CONFIG_HOME/ddp-run/rdzv-token, by default ~/.config/ddp-run/rdzv-token; empty: there is no
/// home folder.
std::string user_token_file(const Environment& environment);

/// Whether the folder that holds `path`, or the nearest one above it that exists, is on a file
/// system that several machines share (NFS, Lustre, ...). All nodes get the same result, except one
/// that exports its own disk to the others.
bool is_on_shared_file_system(const std::string& path);

/// Creates the file with 256 random bits, for its owner only, unless it exists. If several nodes do
/// so at once, one wins and all read its file. Throws LaunchError.
void make_user_token(const std::string& path);

}  // namespace ddp::launch
