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
  int port = 0;            // where this node would host the rendezvous if the present host is lost
  long long epoch = -1;    // of the last round that this node accepted; -1: none
  std::string session{};   // a connection to this host was lost, and is to be resumed here
  long long received = 0;  // messages of the session
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
/// In the round that was proposed: waits for Go.
struct Accepted {
  long long epoch = 0;
};
/// Sent both ways.
struct Alive {
  long long received = 0;  // messages of the session so far
};
/// What an agent knows of the job: a question to any other agent, and the answer.
struct Status {
  std::string id;
  std::string run_id;
  long long epoch = -1;  // of the last round that it accepted or proposed; -1: none
  bool hosts = false;
  std::string address{};  // of its host; empty: it has none, or hosts where it was asked
  int port = 0;
  bool has_host() const { return hosts || !address.empty(); }
};

// From the host to a node.

struct Welcome {
  int node = 0;  // identifies it in this job
  std::chrono::milliseconds heartbeat{0};
  std::chrono::milliseconds patience{0};  // with a silent peer
  std::string session;                    // the host's Hello::id
  bool resumed = false;
  long long received = 0;  // messages of the resumed session
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
/// It is proposed, and begins with Go.
struct Round {
  RendezvousInfo info{};
  std::vector<Successor> successors{};  // of the host, in this order
  std::vector<RoundEnd> history{};      // of the job, for the next host
};
/// All of its nodes have accepted the round of this epoch: it begins.
struct Go {
  long long epoch = 0;
};
/// To a spare, which has no part in it.
struct Standby {
  Round round{};
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

using ControlMessage = std::variant<Hello, Join, Failed, Ended, Leave, Accepted, Alive, Status,
                                    Welcome, Refused, Note, Round, Go, Standby, Stop, Verdict>;

/// Long texts and lists are cut to what a report can show.
std::string to_json_text(const ControlMessage& message);
/// nullopt: malformed, of an unknown type, or with values out of range. Never throws.
std::optional<ControlMessage> parse_control_message(std::string_view text) noexcept;

}  // namespace ddp::launch
