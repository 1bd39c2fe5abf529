// Runs one ssh for each host of --hosts: shows their output, passes signals on, and makes one exit
// code of theirs. The hosts' own ddp-runs agree on everything else.
#pragma once

#include <vector>

#include "launcher/cluster/host_command.h"
#include "launcher/process/signal_mailbox.h"

namespace ddp::launch {

/// The job's exit code: 0 if at least `min_nodes` hosts ended with it, else that of the first host
/// that failed. `codes`: in the order in which the hosts ended. Pure.
int exit_code_of_hosts(const std::vector<int>& codes, int min_nodes);

/// Blocks until all have ended. If this process dies, its ssh processes do, and the hosts' ddp-runs
/// read the end of their standard input.
int run_on_hosts(const HostsPlan& plan, const SignalMailbox& signals);

}  // namespace ddp::launch
