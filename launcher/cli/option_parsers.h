// Parsers of single option values: lists, rank maps, codes, signals, addresses. Pure; every error
// is a LaunchError (2) with the option, the value and the fix.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/base/restart_rules.h"
#include "launcher/base/system/sockets.h"
#include "launcher/logs/stream_plan.h"

namespace ddp::launch {

/// --nproc-per-node; nullopt for gpu, cpu and auto, which depend on the machine.
std::optional<int> parse_local_world_size(const std::string& value);
/// --nnodes: N or MIN:MAX; more than one node is an error.
struct NodeRange {
  int min = 1;
  int max = 1;
};
NodeRange parse_nnodes(const std::string& value);
/// --signals-to-handle: SIGTERM,USR1,15.
std::vector<int> parse_signals(const std::string& list);

/// --rdzv-conf: KEY=VALUE,...
std::map<std::string, std::string> parse_rdzv_conf(const std::string& text);

/// --rdzv-endpoint: HOST:PORT or [V6]:PORT; nullopt for a host without a port.
std::optional<Endpoint> parse_endpoint(const std::string& text);

/// --redirects, --tee: 0 to 3, or RANK:VALUE,...
RankStreams parse_streams(const char* name, const std::string& text);
/// --local-ranks-filter: 0,1,12; empty: none.
std::set<int> parse_ranks(const std::string& text);
/// --duplicate-*-filters: comma-separated strings; `,,` is a literal comma.
std::vector<std::string> parse_filters(const std::string& text);
/// --log-max-size: 4096, 64K, 10M, 2G (powers of 1024), 0 or at least 4096, then :KEEP if not 3.
Rotation parse_rotation(const std::string& text);
/// --restart-policy: a policy, which may be missing, then final=CODE and retry=CODE in any order.
/// Sets policy, final_codes and retry_codes; the other rules are the defaults.
RestartRules parse_restart_policy(const std::string& text);
/// --health-port: PORT, HOST:PORT or [V6]:PORT; the default host is 127.0.0.1.
Endpoint parse_health(const std::string& text);

}  // namespace ddp::launch
