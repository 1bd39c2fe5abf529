#include "launcher/cli/node_options.h"

#include <fmt/format.h>

#include <set>

#include "launcher/base/errors.h"
#include "launcher/base/system/sockets.h"
#include "launcher/base/text.h"
#include "launcher/cli/option_parsers.h"
#include "launcher/cluster/scheduler.h"
#include "launcher/rendezvous/round/rank_order.h"
#include "launcher/rendezvous/wire/endpoint_lookup.h"

namespace ddp::launch {
namespace {

constexpr int kStaticPort = 29500;
constexpr int kDynamicPort = 29400;

bool flag_of(const std::string& key, const std::string& text) {
  static const std::set<std::string> kYes{"1", "true", "yes", "t", "y"};
  static const std::set<std::string> kNo{"0", "false", "no", "f", "n"};
  const std::string word = lowercase(text);
  if (kYes.count(word) == 0 && kNo.count(word) == 0)
    usage_error(fmt::format("--rdzv-conf={}={}: must be true or false", key, text));
  return kYes.count(word) > 0;
}

[[noreturn]] void refuse_store(const std::string& key, const std::string& value) {
  usage_error(fmt::format(
      "--rdzv-conf={}={}: nodes meet over TCP only, not in a file; name the node that hosts the "
      "rendezvous with --rdzv-endpoint=HOST[:PORT], or let --scheduler or --hosts name it",
      key, value));
}

constexpr std::size_t kLongestKey = 256;

std::string key_in(const std::string& variable, const Environment& environment) {
  const std::string key = value_of(environment, variable);
  if (key.empty()) {
    usage_error(
        fmt::format("--rank-order={0}: the environment variable {0} is not set on this node; use "
                    "{1}, {2}, or a variable that is set on every node",
                    printable(variable), kOrderByHost, kOrderByArrival));
  }
  if (key.size() > kLongestKey) {
    usage_error(fmt::format("--rank-order={}: the variable's value has {} bytes; use at most {}",
                            variable, key.size(), kLongestKey));
  }
  return key;
}

Endpoint take_endpoint(const OptionValues& values, const std::string& text, bool is_static) {
  Endpoint endpoint;
  if (text.empty() && (is_static || values.given("master-addr"))) {
    const bool has_port = is_static || values.given("master-port");
    endpoint = {values.text("master-addr"), has_port ? values.integer("master-port", 0, 65535) : 0};
  } else if (const auto given = parse_endpoint(text)) {
    endpoint = *given;
  } else {
    endpoint.host = text;
  }
  if (endpoint.host.empty() && values.given("rdzv-endpoint")) {
    usage_error(fmt::format(
        "--rdzv-endpoint={}: no host in it; is the shell variable set? HOST[:PORT] of one node",
        values.text("rdzv-endpoint")));
  }
  if (endpoint.host.empty()) {
    usage_error(
        "--rdzv-endpoint is needed for several nodes with --rdzv-backend=c10d: HOST[:PORT] of the "
        "node that is to host the rendezvous, the same on all nodes");
  }
  if (endpoint.port == 0) endpoint.port = is_static ? kStaticPort : kDynamicPort;
  return endpoint;
}

}  // namespace

std::string rdzv_backend(const OptionValues& values) {
  const std::string given = values.one_of("rdzv-backend", {"static", "c10d", "etcd", "etcd-v2"});
  return given == "etcd-v2" ? "etcd" : given;  // torchrun's name for another client of API v2
}

std::vector<Endpoint> take_endpoints(const OptionValues& values, bool is_static) {
  constexpr std::size_t kMost = 16;
  const std::string& text = values.text("rdzv-endpoint");
  const auto items = split_list(text, ',');
  if (items.size() <= 1) return {take_endpoint(values, text, is_static)};
  if (is_static || items.size() > kMost) {
    usage_error(fmt::format(
        "--rdzv-endpoint={}: {}", text,
        is_static ? "several endpoints are for --rdzv-backend=c10d; give the one of node 0"
                  : fmt::format("at most {} endpoints; 3 are enough", kMost)));
  }
  std::vector<Endpoint> endpoints;
  for (const std::string& item : items)
    endpoints.push_back(take_endpoint(values, trimmed(item), is_static));
  return endpoints;
}

std::string note_on_reach(const OptionValues& values, const Endpoint& endpoint, bool is_static) {
  const std::string& host = endpoint.host;
  if (!is_loopback(host) && !is_localhost(host)) {
    if (rdzv_backend(values) != "c10d") return "";
    const std::string given = values.text("rdzv-endpoint");
    const bool several = given.find(',') != std::string::npos;
    return fmt::format("; all nodes need the same endpoint (here {}) and must be able to reach it",
                       several ? given : place_text(host, endpoint.port));
  }
  const bool by_endpoint = !is_static || !values.text("rdzv-endpoint").empty();
  return fmt::format(
      "; the rendezvous is at {}, where other machines cannot reach it: give all nodes {}{}", host,
      by_endpoint ? "--rdzv-endpoint=HOST:PORT" : "--master-addr=HOST",
      is_static ? " of node 0, and each its --node-rank" : " of one of them");
}

int conf_seconds(const std::string& key, const std::string& text, int least) {
  const auto number = whole_number(text);
  if (!number || *number < least) {
    usage_error(fmt::format("--rdzv-conf={}={}: must be a whole number of seconds, at least {}",
                            key, text, least));
  }
  return *number;
}

std::vector<std::string> apply_rdzv_conf(const std::map<std::string, std::string>& conf,
                                         GroupSettings& settings) {
  // Settings of torchrun's implementation that have no counterpart here.
  static const std::set<std::string> kWithoutMeaning{"close_timeout", "heartbeat_timeout",
                                                     "cas_backoff_max_seconds", "rank"};
  MembershipRules& rules = settings.rules;
  if (rules.fixed_ranks) settings.connect_timeout = rules.join_timeout;
  std::vector<std::string> hints;
  for (const auto& [key, value] : conf) {
    const auto seconds = [&key = key, &value = value] {
      return std::chrono::seconds(conf_seconds(key, value));
    };
    if (key == "join_timeout") {
      rules.join_timeout = seconds();
    } else if (key == "last_call_timeout") {
      rules.last_call = rules.quiet = seconds();
    } else if (key == "keep_alive_interval") {
      rules.heartbeat = seconds();
    } else if (key == "keep_alive_max_attempt") {
      rules.missed_heartbeats = conf_seconds(key, value);
    } else if (key == "read_timeout") {
      settings.connect_timeout = seconds();
    } else if (key == "timeout") {
      if (rules.fixed_ranks) rules.join_timeout = settings.connect_timeout = seconds();
    } else if (key == "store_type") {
      if (value != "tcp" && !rules.fixed_ranks) refuse_store(key, value);
    } else if (key == "allow_minority") {
      rules.allow_minority = flag_of(key, value);
    } else if (key == "is_host") {
      settings.is_host = flag_of(key, value);
    } else if (kWithoutMeaning.count(key) == 0) {
      hints.push_back(fmt::format("--rdzv-conf: '{}={}' has no effect here", key, value));
    }
  }
  return hints;
}

void take_rank_order(GroupSettings& group, const OptionValues& values,
                     const Environment& environment) {
  const std::string& by = values.text("rank-order");
  if (by.empty())
    value_error("rank-order", by, "host, arrival, or the name of an environment variable");
  group.rules.rank_order = by;
  if (by == kOrderByArrival) return;
  group.sort_key = by == kOrderByHost ? slurm_place(environment) : key_in(by, environment);
}

}  // namespace ddp::launch
