// What the agents of several nodes tell each other: JSON objects, one per frame. Every node sends
// to the host of the rendezvous only, and the host answers.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/base/run_result.h"
#include "launcher/base/states.h"
#include "launcher/rendezvous/restart_policy.h"

namespace ddp::launch {

// From a node to the host.

/// The first message of a connection.
struct Hello {
  std::string id;  // random: this agent, wherever it connects
  std::string run_id;
  int min_nodes = 1;
  int max_nodes = 1;
  int node_rank = -1;     // -1: assigned
  std::string host;       // name, for messages
  std::string address{};  // that the workers of other nodes reach; empty: as the host sees it
  pid_t pid = 0;
  int local_world_size = 1;
  std::string role;
  int max_restarts = 0;
  int port = 0;  // where this node would host the rendezvous if the present host is lost
};
/// Ready for the next round; `port`: of a store for its workers, should this node be the first.
struct Join {
  int port = 0;
};
/// A worker has failed.
struct Failed {
  ProcessFailure failure;
};
/// No worker of this node runs any more.
struct Ended {
  std::vector<ProcessFailure> failures{};
  bool stopped = false;
  bool preempted = false;
};
/// This node leaves the job, because of a signal.
struct Leave {
  int signal = 0;
};
/// Nothing else to say; sent both ways.
struct Alive {};

// From the host to a node.

struct Welcome {
  int node = 0;  // identifies it in this job
  std::chrono::milliseconds heartbeat{0};
  std::chrono::milliseconds patience{0};  // with a silent peer
};
struct Refused {
  std::string why;
};
/// A line for the user.
struct Note {
  std::string text;
};
struct Successor {
  int node = 0;
  std::string address;
  int port = 0;
};
/// More are not told: the messages of a round would grow with the square of its nodes.
inline constexpr std::size_t kMostSuccessors = 64;
/// The round that the nodes have agreed on, as the receiver sees it.
struct Round {
  RendezvousInfo info{};
  std::vector<Successor> successors{};  // of the host, in this order
  std::vector<RoundEnd> history{};      // of the job, for the next host
};
struct Stop {
  bool leaving = false;
  std::string text;
};
struct Verdict {
  bool over = false;
  Outcome outcome = Outcome::Succeeded;  // when over
  RestartVerdict verdict{};
  std::string text{};
  std::vector<ProcessFailure> failures{};  // `host` is set in all of them
};

using ControlMessage = std::variant<Hello, Join, Failed, Ended, Leave, Alive, Welcome, Refused,
                                    Note, Round, Stop, Verdict>;

/// Long texts and lists are cut to what a report can show.
std::string to_json_text(const ControlMessage& message);
/// nullopt: malformed, of an unknown type, or with values out of range. Never throws.
std::optional<ControlMessage> parse_control_message(std::string_view text) noexcept;

}  // namespace ddp::launch
