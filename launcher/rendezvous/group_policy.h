// Decides what an agent of several nodes does next: its stage after an event, and its action there.
// Pure: tested as a table, without sockets or a clock. GroupRendezvous detects the events and acts.
// launcher/README.md draws the table; a test compares the two.
#pragma once

#include <array>

namespace ddp::launch {

enum class GroupStage {
  kIdle,
  kSearching,  // for an agent to connect to
  kStanding,   // listens at an endpoint, and asks the others before it hosts
  kGreeting,   // the channel is open, but there was no Welcome yet
  kSeeking,    // no host; the authority decides on the next one
  kMember,
  kOrphaned,  // static: the host is lost; this node's round has to end, then the job
  kOver,
};

inline constexpr std::array kStageNames{"Idle",    "Searching", "Standing", "Greeting",
                                        "Seeking", "Member",    "Orphaned", "Over"};

/// The target of a node that searches or greets.
enum class Sought {
  kAnyHost,
  kNextHost,  // the authority was asked for it
  kSameHost,  // to resume the session: the connection is lost, but not the host yet
};

struct GroupSituation {
  GroupStage stage = GroupStage::kIdle;
  Sought sought = Sought::kAnyHost;
  bool has_round = false;        // the last round of the job is known here
  bool fixed_ranks = false;      // static: no other node can host
  bool authority_leads = false;  // the authority finds the first host, not the endpoints
  bool may_host = true;          // at an endpoint
  bool holds_endpoint = false;   // listens there, and does not host
  bool candidate = false;        // has more places to ask than one endpoint
  bool waits = false;            // at the endpoint, for the host's call
};

enum class GroupEvent {
  kStart,        // it is to take part, or to search again
  kListening,    // a free endpoint is an address of this machine
  kUnreachable,  // no place could be reached
  kConnected,
  kWelcome,
  kSentOn,  // the agent there redirected to the host
  kNoHost,  // the agent there has none
  kSilent,  // no reply from the agent there
  kClosed,  // the connection has ended
  kLost,    // the host, for good
  kNamed,   // a place to connect to
  kMayHost,
  kDeposed,  // as the host
  kEnd,      // of the job, for this node at least
};

enum class GroupAction {
  kNone,
  kDefect,      // no such event is possible in this stage
  kSearch,      // at the endpoints
  kStand,       // as a candidate for hosting
  kWait,        // for the host's call
  kFollow,      // connect to the given place
  kTryAnother,  // the agent there is not the host
  kTryLater,
  kResume,  // connect to the same host again
  kLose,    // the host: an event of its own
  kSeek,    // ask the authority
  kHost,    // the first round of a job
  kTakeOver,
  kMakeWay,  // for a job that runs already
  kOrphan,
};

struct GroupMove {
  GroupStage stage;
  GroupAction action = GroupAction::kNone;
  bool operator==(const GroupMove&) const = default;
};

GroupMove next_move(const GroupSituation& now, GroupEvent event);

}  // namespace ddp::launch
