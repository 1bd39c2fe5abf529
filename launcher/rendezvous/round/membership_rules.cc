#include "launcher/rendezvous/round/membership_rules.h"

#include <fmt/format.h>

#include "launcher/base/text.h"

namespace ddp::launch {
namespace {

std::string policy_text(const RestartRules& rules) {
  std::string text = kRestartPolicies.at(static_cast<std::size_t>(rules.policy));
  for (const int code : rules.final_codes) text += fmt::format(",final={}", code);
  for (const int code : rules.retry_codes) text += fmt::format(",retry={}", code);
  return text;
}

}  // namespace

bool needs_all_nodes(const MembershipRules& rules) {
  return !rules.fixed_ranks && rules.min_nodes == rules.max_nodes &&
         rules.restarts.max_restarts == 0;
}

std::map<std::string, std::string> agreed_values(const MembershipRules& rules) {
  std::map<std::string, std::string> values{
      {"--restart-policy", policy_text(rules.restarts)},
      {"--healthy-after", seconds_text(rules.restarts.healthy_after)},
      {"--rdzv-conf=keep_alive_interval", seconds_text(rules.heartbeat)},
      {"--rdzv-conf=keep_alive_max_attempt", fmt::format("{}", rules.missed_heartbeats)}};
  if (rules.fixed_ranks) return values;
  values["--rank-order"] = rules.rank_order;
  values["--quarantine-after"] = fmt::format("{}", rules.quarantine_after);
  return values;
}

}  // namespace ddp::launch
