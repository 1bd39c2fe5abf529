// A job of several nodes as the host of its rendezvous hears it: messages and times in, messages
// out, no socket and no clock.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/rendezvous/round/membership.h"
#include "tests/support/catch.h"

namespace ddp::launch::membership {

using Nodes = std::vector<int>;
using std::chrono::milliseconds;
using std::chrono::seconds;

inline constexpr milliseconds kBeat{1'000};

inline MembershipRules elastic(int min, int max, int max_restarts = 0) {
  MembershipRules rules{.run_id = "job", .min_nodes = min, .max_nodes = max};
  rules.restarts.max_restarts = max_restarts;
  rules.join_timeout = seconds(600);
  rules.heartbeat = kBeat;
  rules.missed_heartbeats = 2;
  rules.host_id = std::string("1");
  return rules;
}

inline MembershipRules fixed(int nodes, int max_restarts = 0) {
  MembershipRules rules = elastic(nodes, nodes, max_restarts);
  rules.fixed_ranks = true;
  rules.master_addr = "master";
  rules.master_port = 29500;
  return rules;
}

inline ProcessFailure exited(int rank, int code) {
  ProcessFailure failure;
  failure.rank = failure.local_rank = rank;
  failure.pid = 1000 + rank;
  failure.exit = {code, 0};
  return failure;
}

// GCC 12 warns of a bug of its own at "text" + std::to_string().
inline std::string named(std::string name, int number) {
  return name.append(std::to_string(number));
}

/// The agents as the host of the rendezvous hears them. Node n is at 10.0.0.n and named h<n>.
struct Job {
  explicit Job(const MembershipRules& its_rules, JobHistory history = {})
      : rules(its_rules), membership(its_rules, std::move(history), now) {}

  Hello hello_of(int node) const {
    return {.id = std::to_string(node),
            .run_id = rules.run_id,
            .min_nodes = rules.min_nodes,
            .max_nodes = rules.max_nodes,
            .node_rank = rules.fixed_ranks ? node - 1 : -1,
            .host = named("h", node),
            .pid = 100 + node,
            .role = "trainer",
            .max_restarts = rules.restarts.max_restarts,
            .agreed = agreed_values(rules),
            .port = 5000 + node,
            .member = named("m", node)};
  }
  static std::string address_of(int node) { return named("10.0.0.", node); }

  Job& greet(int node, const Hello& hello) {
    membership.hello(node, hello, address_of(node), now);
    return deliver();
  }
  Job& greet(int node) { return greet(node, hello_of(node)); }
  Job& say(int node, const ControlMessage& message) {
    membership.receive(node, message, now);
    return deliver();
  }
  Job& join(int node) { return say(node, Join{6000 + node}); }
  Job& come(const Nodes& nodes) {
    for (const int node : nodes) greet(node).join(node);
    return *this;
  }
  Job& fail(int node, const ProcessFailure& failure) { return say(node, Failed{failure}); }
  Job& end(int node, const std::vector<ProcessFailure>& failures = {}) {
    return say(node, Ended{.failures = failures});
  }
  Job& end_stopped(const Nodes& nodes) {
    for (const int node : nodes) say(node, Ended{.stopped = true});
    return *this;
  }
  Job& lose(int node, const std::string& why = "its ddp-run is gone") {
    membership.lost(node, why, now);
    return deliver();
  }
  /// A job that waits asks to be woken at a time to come: one that has passed would come at once.
  Job& pass(milliseconds time) {
    now += time;
    membership.tick(now);
    REQUIRE(membership.deadline().value_or(Clock::time_point::max()) > now);
    return deliver();
  }
  /// Every node accepts what is proposed, unless it is one of `deaf`.
  Job& deliver() {
    for (auto out = membership.take_outgoing(); !out.empty(); out = membership.take_outgoing()) {
      for (auto& one : out) {
        heard[one.to].push_back(*one.message);
        if (one.then_close) closed.insert(one.to);
        const auto* round = std::get_if<Round>(one.message.get());
        if (round && deaf.count(one.to) == 0)
          membership.receive(one.to, Accepted{round->info.epoch}, now);
      }
    }
    return *this;
  }

  template <typename Message>
  std::vector<Message> all(int node) {
    std::vector<Message> found;
    for (const auto& message : heard[node]) {
      if (const auto* one = std::get_if<Message>(&message)) found.push_back(*one);
    }
    return found;
  }
  template <typename Message>
  Message last(int node) {
    const auto found = all<Message>(node);
    REQUIRE_FALSE(found.empty());
    return found.back();
  }
  std::size_t rounds(int node) { return all<Round>(node).size(); }
  /// The nodes of the last round, in the order of their ranks.
  Nodes order() {
    std::map<int, int> by_rank;
    decltype(RendezvousInfo::epoch) newest{};  // a round that was withdrawn has an earlier one
    for (auto& [node, messages] : heard) {
      for (const Round& round : all<Round>(node)) newest = std::max(newest, round.info.epoch);
    }
    for (auto& [node, messages] : heard) {
      for (const Round& round : all<Round>(node)) {
        if (round.info.epoch == newest) by_rank[round.info.group_rank] = node;
      }
    }
    Nodes nodes;
    for (const auto& [rank, node] : by_rank) nodes.push_back(node);
    return nodes;
  }

  MembershipRules rules;
  Clock::time_point now = Clock::now();
  Membership membership;
  std::map<int, std::vector<ControlMessage>> heard;
  std::set<int> closed;
  std::set<int> deaf;
};

}  // namespace ddp::launch::membership
