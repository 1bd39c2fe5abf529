// --hosts: selects the options for the hosts' ddp-run.
#pragma once

#include <optional>

#include "launcher/cli/option_values.h"
#include "launcher/cluster/hosts_request.h"

namespace ddp::launch {

/// nullopt: the job is not started on other hosts. Errors are LaunchErrors (2).
std::optional<HostsRequest> take_hosts(const OptionValues& values);

}  // namespace ddp::launch
