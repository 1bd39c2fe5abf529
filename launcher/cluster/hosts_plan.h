// Plans a job on other hosts: the commands that start it.
#pragma once

#include <string>
#include <vector>

#include "launcher/base/command.h"
#include "launcher/cluster/hosts_request.h"

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

/// The place from which the job is started, and values chosen for it.
struct HostsPlace {
  std::string folder;   // working folder
  std::string ddp_run;  // path of this program
  std::string version;
  std::string run_id;  // unless given
  std::string token;   // unless one is given
  int port = 0;        // of the rendezvous, unless given
  Environment environment;

  static HostsPlace of_this_process();
};

/// `contents`: of the request's file. Throws LaunchError: 2, or 127 if ssh was not found.
HostsPlan plan_hosts(const HostsRequest& request, const std::string& contents,
                     const HostsPlace& place);

/// Returns one shell line per host.
std::string shell_lines(const HostsPlan& plan);

}  // namespace ddp::launch
