// What a job of several nodes requires of its membership.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "launcher/base/restart_rules.h"

namespace ddp::launch {

struct MembershipRules {
  std::string run_id;
  int min_nodes = 1;
  int max_nodes = 1;
  bool fixed_ranks = false;  // static: each node has its --node-rank, and all must be there
  RestartRules restarts{};
  std::chrono::milliseconds join_timeout{600'000};
  /// How long the first round waits for nodes beyond min_nodes: `last_call` in all, `quiet` after
  /// the last arrival. A later node joins with a new round, so waiting only saves a restart.
  std::chrono::milliseconds last_call{30'000};
  std::chrono::milliseconds quiet{1'000};
  std::chrono::milliseconds heartbeat{3'000};
  int missed_heartbeats = 5;  // after which a silent node counts as lost
  std::chrono::milliseconds patience() const { return missed_heartbeats * heartbeat; }
  std::string host_id{};  // Hello::id of the host's own agent
  /// The workers' store with fixed_ranks, where it shares the port of the rendezvous. Otherwise the
  /// store is on the first node, at the port in its Join.
  std::string master_addr{};
  int master_port = 0;
  /// A partition of the job that cannot reach the others continues once their patience is over,
  /// although they may continue as well.
  bool allow_minority = false;
  /// An external authority decides who hosts the job: no mandate is needed, but each round needs an
  /// epoch from it.
  bool epochs_are_granted = false;
  /// The nodes' sort order, except with fixed_ranks: see rank_order().
  std::string rank_order{"host"};
  /// A node whose workers were the first to fail in this many rounds is excluded; 0: never.
  int quarantine_after = 0;
  /// The user gave --rdzv-id; otherwise another job may have the same one.
  bool own_id = true;
  /// Appended to messages about missing nodes: "; " and why they may be unable to connect.
  std::string reach_note{};
};

/// Whether the job ends with a lost node: its number is fixed, and no restart is allowed.
bool needs_all_nodes(const MembershipRules& rules);

/// Settings that all nodes of a job must share, apart from their number: option -> value.
std::map<std::string, std::string> agreed_values(const MembershipRules& rules);

}  // namespace ddp::launch
