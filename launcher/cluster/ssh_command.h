// The command that starts ddp-run on another host. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddp::launch {

/// One word, for whatever login shell the host's user has: sh, bash, zsh, csh or fish.
std::string quoted_for_any_shell(std::string_view word);

struct RemoteCommand {
  std::string folder;                  // to work in
  std::string ddp_run;                 // its path on this machine, tried first; else PATH
  std::vector<std::string> settings;   // NAME=VALUE
  std::vector<std::string> arguments;  // of ddp-run
};

/// The single word for ssh behind the host's name. On the host it ends with 127 and one line if
/// there is no ddp-run, with 1 if there is no such folder.
std::string remote_command_line(const RemoteCommand& command);

}  // namespace ddp::launch
