// Runs one ssh per host of --hosts: shows their output, forwards signals, and combines their exit
// codes. The hosts' own ddp-run processes agree on everything else.
#pragma once

#include <vector>

#include "launcher/cluster/hosts_plan.h"
#include "launcher/process/signal_mailbox.h"

namespace ddp::launch {

/// Returns the job's exit code: 0 if at least `min_nodes` hosts exited with 0, else that of the
/// first host that failed. `codes`: in the order in which the hosts exited. Pure.
int exit_code_of_hosts(const std::vector<int>& codes, int min_nodes);

/// Blocks until all hosts have exited. If this process dies, so do its ssh processes, and ddp-run
/// on the hosts reads end-of-file from standard input.
int run_on_hosts(const HostsPlan& plan, const SignalMailbox& signals);

}  // namespace ddp::launch
