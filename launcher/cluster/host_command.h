// A job on other hosts as the commands that start it: plain structs.
#pragma once

#include <string>
#include <vector>

#include "launcher/base/command.h"

namespace ddp::launch {

struct HostCommand {
  std::string label;        // unique
  std::string destination;  // for ssh
  Command command;          // ssh, the host, and one word for its shell
};

struct HostsPlan {
  std::vector<HostCommand> hosts;  // in the order of node ranks
  int min_nodes = 1;               // the job ends when fewer hosts are left
  Environment environment;         // ssh's
  std::string token{};             // the first line of every host's standard input; empty: none
};

}  // namespace ddp::launch
