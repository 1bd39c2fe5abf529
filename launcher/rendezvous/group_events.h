// What one node of a job notices (events) and what it does about it (actions): plain structs.
// GroupRendezvous makes the former of its sockets and timers, and executes the latter.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/base/pace.h"
#include "launcher/rendezvous/authority.h"
#include "launcher/rendezvous/follow/members_file.h"
#include "launcher/rendezvous/rendezvous.h"
#include "launcher/rendezvous/round/job_history.h"
#include "launcher/rendezvous/wire/control_messages.h"
#include "launcher/rendezvous/wire/place.h"

namespace ddp::launch {

namespace events {

// From this node's agent; see Rendezvous.
struct Connect {};
struct Join {};
struct Withdraw {
  std::string why;
};
struct WorkerFailed {
  ProcessFailure failure;
};
struct WorkersEnded {
  NodeEnd end;
};
struct Leave {
  int signal = 0;
};
struct Paced {
  NodePace pace;
};
/// A question to the other nodes, or the reply to one: the fields set in `part`.
struct Inspected {
  Alive part;
};
/// What an earlier agent of this node has left; before the first Connect or Join.
struct MembersRead {
  LastMembers members;
};

// Each turn of the loop.
struct TurnBegins {};
struct RepliesRead {};  // of agents that are asked about the job
struct TurnEnds {};     // all that has arrived has been an event

// The search for a host.
struct Listening {};  // at an endpoint, which is a free address of this machine
struct EndpointsChanged {};
struct Unreachable {};  // none of the places
struct Opened {         // a connection to Sight::present
  std::string local_address;
};
/// Another agent has asked here about the job.
struct Called {
  Status status;
};
/// What the authority wants of a node that seeks(). `despair`: why it has given up, or empty.
struct Advised {
  Authority::Step step;
  std::string despair;
};

// The connection.
struct Received {
  ControlMessage message;
};
struct Closed {
  std::string why;
  bool peer_is_gone = false;
};

// This node's own sockets, and the host that it runs.
struct PortOpened {  // where it would host
  int port = 0;
};
struct StoreOpened {
  int port = 0;
};
struct Claimed {
  bool listens = false;
  bool taken = false;  // another program listens there
};
/// The host of this node has stopped hosting. `port`: of its sockets; 0: unchanged.
struct Deposed {
  std::string why;
  Place successor{};  // empty: unknown
  long long later_epoch = -1;
  int port = 0;
};

}  // namespace events

using NodeEvent =
    std::variant<events::Connect, events::Join, events::Withdraw, events::WorkerFailed,
                 events::WorkersEnded, events::Leave, events::Paced, events::Inspected,
                 events::MembersRead, events::TurnBegins, events::RepliesRead, events::TurnEnds,
                 events::Listening, events::EndpointsChanged, events::Unreachable, events::Opened,
                 events::Called, events::Advised, events::Received, events::Closed,
                 events::PortOpened, events::StoreOpened, events::Claimed, events::Deposed>;

namespace actions {

/// Tells the agent.
struct Tell {
  JobNews news;
};
/// Throws LaunchError: this node cannot take part.
struct Fail {
  std::string why;
};

// The search for a host.
struct Search {  // at the endpoints
  bool may_host = true;
};
struct Connect {
  Place place;
  std::chrono::milliseconds patience{0};
};
struct TryAnother {
  std::string why;
};
struct RestSearch {};
struct ProlongSearch {};
/// Asks these agents about the job, until StopAsking.
struct Ask {
  std::vector<Place> places;
  Status question;
};
struct StopAsking {};

// The connection.
struct SayHello {};  // GroupNode::hello()
struct Send {
  ControlMessage message;
};
struct Resend {};  // what the session has unconfirmed
struct Disconnect {};

// This node's own sockets, and the host that it runs.
struct OpenPort {  // then PortOpened
  std::string address;
};
struct OpenStore {  // then StoreOpened
  std::string address;
};
struct CloseStore {};
struct Host {
  JobHistory history;
  Place place{};  // for its Status
};
struct Retire {
  bool hand_over = false;
};
struct Claim {};  // listen at the endpoints as well; then Claimed

struct WriteMembers {
  LastMembers members;
};
struct RemoveMembers {};

// As in Authority.
struct Seek {
  std::optional<Authority::Loss> loss;
  Status status;
};
struct Avoid {
  Place place;
};
struct Settle {
  bool hosts = false;
};
struct Resign {};
struct EndJob {};

}  // namespace actions

using NodeAction =
    std::variant<actions::Tell, actions::Fail, actions::Search, actions::Connect,
                 actions::TryAnother, actions::RestSearch, actions::ProlongSearch, actions::Ask,
                 actions::StopAsking, actions::SayHello, actions::Send, actions::Resend,
                 actions::Disconnect, actions::OpenPort, actions::OpenStore, actions::CloseStore,
                 actions::Host, actions::Retire, actions::Claim, actions::WriteMembers,
                 actions::RemoveMembers, actions::Seek, actions::Avoid, actions::Settle,
                 actions::Resign, actions::EndJob>;

}  // namespace ddp::launch
