// One node's part in a job of several: how it finds the host of the rendezvous, follows it through
// rounds, replaces it or hosts itself. Pure: an event, and what the node sees at that time, change
// its state and yield actions. next_move() decides on its stage; the other nodes' part is
// Membership's, who is to host next is an Authority's.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/rendezvous/follow/newcomer.h"
#include "launcher/rendezvous/group_events.h"
#include "launcher/rendezvous/group_policy.h"
#include "launcher/rendezvous/group_settings.h"
#include "launcher/rendezvous/round/last_round.h"
#include "launcher/rendezvous/wire/endpoint_lookup.h"
#include "launcher/rendezvous/wire/session.h"

namespace ddp::launch {

/// What a node sees when something happens.
struct Sight {
  Clock::time_point now{};
  // The search for a host.
  Place present{};         // the place that is tried or was found
  bool follows = false;    // it tries known places
  bool exhausted = false;  // in vain
  bool refused = false;    // nothing listens at the last place
  bool idle = false;
  // The endpoints as last resolved, and those at which this node has listened.
  std::span<const ResolvedEndpoint> endpoints{};
  std::span<const Place> own_places{};
  std::size_t own_rank = 0;               // number of endpoints before them
  std::string elsewhere{};                // EndpointSockets::elsewhere
  std::string unknown{};                  // EndpointWatch::unknown
  std::string own_address{};              // Authority::own_address
  std::vector<Inquiry::Finding> found{};  // by the latest Ask
};

/// A node that knows more places than one endpoint, and asks there before it hosts.
struct Candidacy {
  Newcomer newcomer;
  Clock::time_point since;
  bool noted = false;
  bool all_heard = false;  // the endpoint decides
};

/// A node's connection to its host.
struct HostLink {
  bool open = false;  // at least greeting
  std::string id{};   // the host's Hello::id
  int node = 0;       // this node's number there
  Session session{};
  Clock::time_point heard{};
  Clock::time_point next_beat{};
  std::chrono::milliseconds heartbeat{3'000};  // as set by the host
  std::chrono::milliseconds patience{15'000};
  std::optional<Straggler> straggler{};
  std::optional<PartlyDone> partly_done{};
  std::string closed_because{};
  std::string lost_because{};
  bool gone = false;  // the lost host's machine refuses connections
};

/// A node's search for a host.
struct Quest {
  Sought sought = Sought::kAnyHost;
  bool may_host = true;
  bool at_endpoint = false;
  bool holds_endpoint = false;  // listens there, and does not host
  std::optional<Candidacy> candidacy{};
  LastMembers last_members{};               // of an earlier agent of this node
  bool returned = false;                    // RoundPart::epoch is that agent's
  std::vector<Place> last_others{};         // of the latest round that had other nodes
  std::vector<Inquiry::Finding> callers{};  // hosts that have asked here in this turn
  std::optional<Clock::time_point> retry_at{};
  std::optional<Clock::time_point> waits_since{};  // when a newcomer began to wait for the host
  Clock::time_point held_since{};                  // by a node without a host
  bool hold_noted = false;
};

/// The host that this node runs, has run or may run.
struct Hosting {
  bool active = false;
  int port = 0;                     // of this node's own socket; 0: none yet
  Clock::time_point rests_until{};  // does not host before, after it was deposed
  int claims_left = 0;              // attempts to listen at the endpoints as well
  Clock::time_point claim_at{};
};

enum class Work {
  kNone,     // before join(), or the round has ended here
  kAwaited,  // join(): a round is to begin
  kRunning,
  kLost,  // runs still, but is no longer the job's
  kDue,   // the agent is to join() again
};

/// A node's part in the rounds of the job.
struct RoundPart {
  Work work = Work::kNone;
  std::optional<LastRound> last{};  // that this node accepted, or saw as a spare node
  bool proposed = false;            // it has not begun here
  long long epoch = -1;             // of the last accepted round
  long long unused_epoch = -1;      // JobHistory::unused of the next tenure
  NodeEnd end{};
  std::optional<Leave> withdrawn{};  // to be sent once this node has a host
  std::optional<NodePace> pace{};
};

struct NodeState {
  std::string id{};
  std::string member{};           // Hello::member
  std::string numeric_address{};  // of its last connection
  std::string local_address{};    // GroupSettings::local_addr, or the endpoint that leads here
  GroupStage stage = GroupStage::kIdle;
  HostLink host{};
  Quest quest{};
  Hosting hosting{};
  RoundPart round{};
  Clock::time_point awake{};    // when the turn began, before anything was read; waits end by it
  Clock::time_point stalled{};  // end of the last long time in which it did not
};

/// The state of a node of which nothing has happened yet. `id`: Hello::id.
NodeState new_node(const GroupSettings& settings, std::string id, Clock::time_point now);

class GroupNode {
 public:
  /// `authority_leads`: Authority::finds_first_host().
  GroupNode(GroupSettings settings, bool authority_leads, NodeState state)
      : settings_(std::move(settings)),
        authority_leads_(authority_leads),
        state_(std::move(state)) {}

  /// Returns the actions in the order in which they are to be executed.
  std::vector<NodeAction> handle(const NodeEvent& event, const Sight& sight);
  /// When to begin a turn although nothing happens.
  std::optional<Clock::time_point> deadline(const Sight& sight) const;

  const NodeState& state() const { return state_; }
  const GroupSettings& settings() const { return settings_; }
  Hello hello() const;
  /// The reply to other agents.
  Status status(const Sight& sight) const;
  /// Where a node without a host waits. Two nodes that have lost theirs may hold each other.
  std::optional<Place> holder(const Sight& sight) const;
  /// Whether the authority is to be asked: this node has no host, or is held by one without.
  bool seeks() const;
  /// The authority's view. `held`: nodes that wait here; `visited`: replies from
  /// places_to_visit().
  Authority::View view(Clock::time_point now, const std::vector<Hello>& held,
                       const std::vector<Inquiry::Finding>& visited) const;
  /// Whether a connection to Sight::present may become Opened.
  bool may_greet(const Sight& sight) const;
  /// Whether the endpoints' names are to be resolved repeatedly.
  bool watches_endpoints(const Sight& sight) const;
  /// The endpoints that are asked regularly for a job of later nodes; nullopt: not now.
  std::optional<std::vector<Place>> places_to_visit(const Sight& sight) const;

 private:
  void on(const events::Connect&);
  void on(const events::Join&);
  void on(const events::Withdraw& event);
  void on(const events::WorkerFailed& event);
  void on(const events::WorkersEnded& event);
  void on(const events::Leave& event) { leave(Leave{.signal = event.signal}); }
  void on(const events::Paced& event) { state_.round.pace = event.pace; }
  void on(const events::Inspected& event);
  void on(const events::MembersRead& event);
  void on(const events::TurnBegins&);
  void on(const events::RepliesRead&);
  void on(const events::TurnEnds&);
  void on(const events::Listening&);
  void on(const events::EndpointsChanged&);
  void on(const events::Unreachable&);
  void on(const events::Opened& event);
  void on(const events::Called& event);
  void on(const events::Advised& event);
  void on(const events::Received& event);
  void on(const events::Closed& event);
  void on(const events::PortOpened& event) { state_.hosting.port = event.port; }
  void on(const events::StoreOpened& event) { say(Join{event.port}); }
  void on(const events::Claimed& event);
  void on(const events::Deposed& event);

  GroupSituation situation() const;
  void move(GroupEvent event, const std::string& why = "", const Place& place = {});
  // Each the action of a GroupMove.
  void search();
  void stand();
  void wait_for_host();
  void follow(const Place& place);
  void try_another(const std::string& why);
  void resume(const std::string& why);
  void lose_host(const std::string& why, bool gone = false);
  void seek();
  void host_at_endpoint();
  void take_over();
  void make_way(const Place& place);
  void orphan();

  // Entry.
  void connect_to(const Place& place);
  void host(JobHistory history, const Place& status_place, const Place& socket);
  void open_port();
  void enter(const Welcome& welcome);
  void refused(const std::string& why);
  void redirect(const Status& status);
  void disconnect();
  void lose_job(const std::string& text, GroupEvent event = GroupEvent::kLost,
                const Place& place = {});
  bool has_host() const { return state_.stage == GroupStage::kMember || resumes(); }
  bool resumes() const { return state_.quest.sought == Sought::kSameHost; }
  void retry();
  void keep_time();
  std::optional<Clock::time_point> hold_note_due(const Sight& sight) const;
  Place own_place() const;
  std::string own_address() const;

  // At the endpoints.
  void ask_around();
  void end_candidacy();
  std::vector<Lead> leads() const;
  bool has_more_endpoints(const Sight& sight) const;
  void decide();
  void ask_last_members();
  std::optional<Clock::time_point> next_judgement(const Sight& sight) const;
  void note_standing(const std::string& unknown);
  void note_missing_token();
  void judge_wait();

  // Rounds.
  void receive(const Alive& alive);
  void receive(const Refused& refused);
  void receive(const Round& round);
  void receive(const Go& go);
  void receive(const Standby& standby) { remember(standby.round, /*took_part=*/false); }
  void receive(const Stop& stop);
  void receive(const Verdict& verdict);
  void receive(const Note& note) { tell_note(note.text); }
  template <typename Other>
  void receive(const Other&) {}  // is not for a member
  void send_join();
  void leave(const Leave& leave);
  void remember(const Round& round, bool took_part);
  void abandon_round();
  void end_lost_round();
  bool works() const;
  bool was_alone() const;

  void say(const ControlMessage& message);
  void tell_note(const std::string& text);
  void tell_end(const std::string& why);
  void tell(JobNews news) { act(actions::Tell{std::move(news)}); }
  void act(NodeAction action) { actions_.push_back(std::move(action)); }
  Clock::time_point now() const { return sight_.now; }

  GroupSettings settings_;
  bool authority_leads_;
  NodeState state_;
  Sight sight_{};  // of the event that is handled
  std::vector<NodeAction> actions_;
};

}  // namespace ddp::launch
