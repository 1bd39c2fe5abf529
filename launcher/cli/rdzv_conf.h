// The rendezvous options of several nodes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/base/command.h"
#include "launcher/base/system/sockets.h"
#include "launcher/cli/option_values.h"
#include "launcher/rendezvous/group_settings.h"

namespace ddp::launch {

/// "static", "c10d" or "etcd". Errors are LaunchErrors (2).
std::string rdzv_backend(const OptionValues& values);

/// --rdzv-endpoint, or --master-addr and --master-port with the static backend; with the backend's
/// own port if none is given. At least one; several with c10d only. Errors are LaunchErrors (2).
std::vector<Endpoint> take_endpoints(const OptionValues& values, bool is_static);

/// MembershipRules::reach_note for the first host of take_endpoints().
std::string note_on_reach(const OptionValues& values, const std::string& host, bool is_static);

/// torchrun's keys of --rdzv-conf. Returns a line for each that has no effect. Errors are
/// LaunchErrors (2).
std::vector<std::string> apply_rdzv_conf(const std::map<std::string, std::string>& conf,
                                         GroupSettings& settings);

/// Sets rules.rank_order and this node's sort_key: with `host` its place in Slurm's topology, or
/// Slurm's number of the node, if srun started it; with the name of an environment variable that
/// variable's value. Throws LaunchError (2) if that variable is unset or has an unusable value.
void take_rank_order(GroupSettings& group, const OptionValues& values,
                     const Environment& environment);

}  // namespace ddp::launch
