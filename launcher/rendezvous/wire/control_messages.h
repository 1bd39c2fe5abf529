// Messages between the agents of several nodes: JSON objects, one per frame. A node sends only to
// the host of the rendezvous, which replies.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/base/pace.h"
#include "launcher/base/run_result.h"
#include "launcher/base/states.h"
#include "launcher/rendezvous/restart_policy.h"

namespace ddp::launch {

// From a node to the host.

/// The first message of a connection.
struct Hello {
  std::string id;  // random, identifies this agent on all its connections
  std::string run_id;
  int min_nodes = 1;
  int max_nodes = 1;
  int node_rank = -1;     // -1: assigned
  std::string host;       // name, for messages
  std::string address{};  // where other nodes' workers reach it; empty: as the host sees it
  pid_t pid = 0;
  int local_world_size = 1;
  std::string role;
  int max_restarts = 0;
  std::map<std::string, std::string> agreed{};  // agreed_values() of this node
  std::string sort_key{};                       // NodePlace::key
  int port = 0;  // where this node would host the rendezvous if the host is lost
  /// Identifies this node in rounds: the id of its first agent that took part in one and whose
  /// members file it has kept since (MembersFile).
  std::string member{};
  long long epoch = -1;    // epoch of the last round that this node accepted; -1: none
  bool returned = false;   // that was an earlier agent of this node (MembersFile)
  bool alone = false;      // that round had no other node
  std::string session{};   // of a lost connection to this host that is to be resumed
  long long received = 0;  // number of the session's messages received
};
/// Ready for the next round. `port`: of the workers' store, in case this node becomes the first.
struct Join {
  int port = 0;
};
/// A worker has failed.
struct Failed {
  ProcessFailure failure;
};
/// No worker of this node is running any more.
struct Ended {
  std::vector<ProcessFailure> failures{};  // cause first; empty: they succeeded or were stopped
  bool stopped = false;                    // at least one did not exit on its own
  bool preempted = false;                  // all saved their state or finished
};
/// This node leaves the job, because of a signal or for another reason.
struct Leave {
  int signal = 0;
  std::string why{};
};
/// Has accepted the proposed round and waits for Go.
struct Accepted {
  long long epoch = 0;
};
/// The workers of some nodes have all exited with 0, and others run.
struct PartlyDone {
  std::string nodes{};  // whose workers have exited, as text
  bool first = false;   // the receiver is the first node that still runs: it notifies the user
  bool operator==(const PartlyDone&) const = default;
};
inline constexpr std::size_t kLongestTable = 12 << 10;
/// What --status shows of a node's workers.
struct NodeStatus {
  int node = 0;
  std::string table{};  // up to kLongestTable bytes
};
/// Sent both ways.
struct Alive {
  long long received = 0;                   // number of the session's messages received so far
  std::optional<NodePace> pace{};           // from a node
  std::optional<Straggler> straggler{};     // from the host
  std::optional<PartlyDone> partly_done{};  // likewise
  bool stacks = false;  // from a node: ask the others for their stacks; from the host: write them
  bool asks_status = false;  // from a node: ask the others for theirs; from the host: reply
  std::optional<NodeStatus> status{};  // from a node: its own; from the host: another node's
};
/// An agent's knowledge of the job: both the query to another agent and the reply.
struct Status {
  std::string id;
  std::string run_id;
  long long epoch = -1;  // of the last round that it accepted or proposed; -1: none
  bool hosts = false;
  std::string address{};  // of its host; empty: it has none, or is the host itself
  int port = 0;
  bool has_host() const { return hosts || !address.empty(); }
};

// From the host to a node.

struct Welcome {
  int node = 0;  // identifies the node in this job
  std::chrono::milliseconds heartbeat{0};
  std::chrono::milliseconds patience{0};  // how long a peer may be silent
  std::string session;                    // the host's Hello::id
  bool resumed = false;
  long long received = 0;  // number of the resumed session's messages received
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
  std::string member{};  // its Hello::member: another agent may listen there by now
};
/// Limits the size of a round's messages, which would grow with the square of its nodes.
inline constexpr std::size_t kMaxSuccessors = 64;
/// Maximum number of a round's failures in reports and messages.
inline constexpr std::size_t kMostFailures = 8;
/// A proposed round as the receiver sees it. It begins with Go.
struct Round {
  RendezvousInfo info{};
  std::vector<Successor> successors{};  // who may host next, in this order
  RestartTally tally{};                 // of the job, for the next host
  int changes = 0;                      // JobHistory::changes
};
/// All nodes have accepted the round of this epoch: it begins.
struct Go {
  long long epoch = 0;
};
/// The round as sent to a spare node, which takes no part in it.
struct Standby {
  Round round{};
};
struct Stop {
  bool leaving = false;
  std::string text;
};
struct Verdict {
  bool over = false;
  Outcome outcome = Outcome::kSucceeded;  // if over
  RestartVerdict verdict{};
  std::string text{};
  std::vector<ProcessFailure> failures{};  // `host` is set in all of them
};

using ControlMessage = std::variant<Hello, Join, Failed, Ended, Leave, Accepted, Alive, Status,
                                    Welcome, Refused, Note, Round, Go, Standby, Stop, Verdict>;

/// Truncates long texts and lists to what a report can show.
std::string to_json_text(const ControlMessage& message);
/// Returns nullopt if the text is malformed, of an unknown type, or has values out of range.
std::optional<ControlMessage> parse_control_message(std::string_view text) noexcept;

}  // namespace ddp::launch
