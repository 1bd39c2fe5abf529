// A job on other hosts as the commands that start it.
#pragma once

#include <string>

#include "launcher/base/command.h"
#include "launcher/cluster/host_command.h"
#include "launcher/cluster/hosts_request.h"

namespace ddp::launch {

/// Where the job is started from, and what is chosen for it.
struct HostsPlace {
  std::string folder;   // the working folder
  std::string ddp_run;  // path of this program
  std::string version;
  std::string run_id;  // unless given
  int port = 0;        // of the rendezvous, unless given
  Environment environment;

  static HostsPlace of_this_process();
};

/// `contents`: of the request's file. Errors are LaunchErrors: 2, or 127 if ssh was not found.
HostsPlan plan_hosts(const HostsRequest& request, const std::string& contents,
                     const HostsPlace& place);

/// One shell line for each host.
std::string shell_lines(const HostsPlan& plan);

}  // namespace ddp::launch
