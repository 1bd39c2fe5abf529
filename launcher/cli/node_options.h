// The options about a job's nodes: --scheduler, --hosts, --rdzv-* and what belongs to them. Errors
// are LaunchErrors (2).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/command.h"
#include "launcher/base/system/sockets.h"
#include "launcher/cli/option_values.h"
#include "launcher/cluster/hosts_request.h"
#include "launcher/etcd/etcd_settings.h"
#include "launcher/rendezvous/group_settings.h"

namespace ddp::launch {

/// Adds options that are missing to `raw` from the scheduler's variables, with their sources, and
/// one hint that lists them. Given options win. Without --scheduler nothing is added but a hint for
/// users who may have forgotten it.
void add_scheduler_options(RawOptions& raw, const Environment& environment);

/// Returns the options for the hosts' ddp-run; nullopt: the job is not started on other hosts.
std::optional<HostsRequest> take_hosts(const OptionValues& values);

/// "static", "c10d" or "etcd".
std::string rdzv_backend(const OptionValues& values);

/// --rdzv-endpoint, or --master-addr and --master-port with the static backend; with the backend's
/// own port if none is given. At least one; several with c10d only.
std::vector<Endpoint> take_endpoints(const OptionValues& values, bool is_static);

/// MembershipRules::reach_note for the first host of take_endpoints().
std::string note_on_reach(const OptionValues& values, const Endpoint& endpoint, bool is_static);

/// Returns the endpoints of --rdzv-endpoint, with port 2379 by default, and the keys of `conf` that
/// concern etcd, which are removed from it: torchrun's for etcd and etcd-v2, and our own.
EtcdSettings take_etcd(const OptionValues& values, std::map<std::string, std::string>& conf);

/// torchrun's keys of --rdzv-conf. Returns a line for each that has no effect.
std::vector<std::string> apply_rdzv_conf(const std::map<std::string, std::string>& conf,
                                         GroupSettings& settings);
/// A whole number of at least `least`; else a LaunchError that names seconds.
int conf_seconds(const std::string& key, const std::string& text, int least = 1);

/// Sets rules.rank_order and this node's sort_key: with `host` its place in Slurm's topology, or
/// Slurm's number of the node, if srun started it; with the name of an environment variable that
/// variable's value, which must be set and usable.
void take_rank_order(GroupSettings& group, const OptionValues& values,
                     const Environment& environment);

}  // namespace ddp::launch
