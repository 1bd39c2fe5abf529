// The command that starts ddp-run on another host. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddp::launch {

/// Quotes one word for any login shell that the host's user may have: sh, bash, zsh, csh or fish.
std::string quoted_for_any_shell(std::string_view word);

struct RemoteCommand {
  std::string folder;                  // working folder
  std::string ddp_run;                 // its path on this machine, tried first, then PATH
  std::vector<std::string> settings;   // NAME=VALUE
  std::vector<std::string> arguments;  // ddp-run's
};

/// Returns the single word after the host's name on ssh's command line. On the host it exits with
/// 127 and one line if ddp-run was not found, with 1 if the folder does not exist.
std::string remote_command_line(const RemoteCommand& command);

}  // namespace ddp::launch
