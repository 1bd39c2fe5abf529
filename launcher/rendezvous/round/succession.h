// Decides what a node does after losing its host. Pure: findings go in, one step comes out.
//
// The rule that keeps one job from becoming two: every round has an epoch, and its nodes are its
// electorate. Only an agent with a mandate of the last round may host the next one: more than half
// of its nodes follow it (half, if it hosted that round itself), or all surviving ones. A node
// follows one agent at a time, and two majorities have a node in common. The next round begins when
// all of its nodes have accepted it: a node that has accepted a round knows its nodes, and one that
// knows only an older round has to follow.
//
// A restarted node keeps its vote if its members file has it (MembersFile). One that was alone in
// the latest round is its whole electorate: the agent that holds it may host.
//
// A round that a node has accepted need not have begun: the others may have continued from the one
// before, unknown to this node. Then all of its nodes must follow, dead or not, except the host
// that proposed it: as the host it has followed no other node.
//
// The host of the last round need not be the last host: another agent may have taken its place and
// been lost before it has begun a round.
//
// "All surviving ones": a node counts as dead if it left or its machine refused a connection, and
// that was found while the host's last message was fresh. Later, nodes that are dead now may have
// continued without this node for a while, with others that it does not know.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/rendezvous/authority.h"
#include "launcher/rendezvous/wire/control_messages.h"
#include "launcher/rendezvous/wire/inquiry.h"

namespace ddp::launch {

/// Messages read within this time after a suspension may be older than the suspension.
inline constexpr std::chrono::milliseconds kOldWords{100};

/// The share of the last round's nodes that follow an agent.
struct Mandate {
  int nodes = 0;      // in the last round; 0: there was no round
  int followers = 0;  // including the agent
  int returned = 0;   // those among them whose first agents may be among the dead
  int dead = 0;
  bool hosted = false;   // this agent hosted it
  bool begun = true;     // it is known to have begun
  long long later = -1;  // epoch of that round, if it is later than the last one of this node

  bool holds() const {
    const bool most = 2 * followers > nodes || (hosted && 2 * followers == nodes);
    return nodes == 0 || (begun && most) || followers - std::min(returned, dead) >= nodes - dead;
  }
};

/// Places where a connection has failed a moment ago.
class AvoidedPlaces {
 public:
  void avoid(const Place& place, Clock::time_point until) { until_[place] = until; }
  /// Connects, or waits if the place is avoided.
  Authority::Step connect_to(const Place& place, Clock::time_point now) const {
    const auto found = until_.find(place);
    if (found != until_.end() && now < found->second) return {};
    return {Authority::Step::Kind::kConnect, place};
  }
  const std::map<Place, Clock::time_point>& until() const { return until_; }

 private:
  std::map<Place, Clock::time_point> until_;
};

/// Where the host is that the agent found there hosts itself or has named.
inline Place place_of_host(const Inquiry::Finding& found) {
  return found.status.hosts ? found.place : Place{found.status.address, found.status.port};
}

class Succession {
 public:
  using Step = Authority::Step;

  /// `lost`: where the lost host was; nullopt: it was this agent. `fresh_until`: deaths found later
  /// do not count.
  Succession(const LastRound& last, const std::string& own_id, const std::optional<Place>& lost,
             Clock::time_point fresh_until);

  /// Places of all other nodes in the order of succession, the last round's host first, and the
  /// lost host's if it is another one. No duplicates.
  const std::vector<Place>& places() const { return places_; }
  /// Does not try `place`, where a connection failed, again before `until`.
  void avoid(const Place& place, Clock::time_point until) { avoided_.avoid(place, until); }
  /// `findings`: for places(). `view`: the agent's state. `alone`: no mandate is needed.
  Step next(const std::vector<Inquiry::Finding>& findings, const Authority::View& view, bool alone);
  Mandate mandate() const { return mandate_; }
  /// Whether another agent is at the place of the last round's host, and does not know that round.
  bool host_forgot() const { return replaced_.has_value(); }
  /// "10.0.0.1:29400 is silent, 10.0.0.2:3421 is gone", for the message about waiting.
  std::string missing() const { return missing_; }
  /// Whether this node is the first in the order of succession.
  bool is_first() const { return first_; }

 private:
  void add(const Place& place);
  void note_replaced(const std::vector<Inquiry::Finding>& findings, Clock::time_point now);
  bool is_dead(std::size_t i, const Inquiry::Finding& finding) const;
  std::optional<Step> follow_host(const std::vector<Inquiry::Finding>& findings,
                                  const Authority::View& view) const;
  void count(const std::vector<Inquiry::Finding>& findings, const std::vector<Hello>& followers);
  bool holds_later_round(const std::vector<Hello>& later);

  long long epoch_;
  int nodes_;
  bool took_part_;  // this node, in that round
  bool hosted_;     // this agent, that round
  bool begun_;
  std::string host_id_;
  Clock::time_point fresh_until_;
  std::optional<Clock::time_point> replaced_{};  // when another agent was found at the host's place
  std::vector<Place> places_;
  std::size_t electors_ = 0;  // of places_, those of the last round's nodes and its host
  bool host_may_count_;       // the host is known to have taken part in its round
  std::size_t own_place_;     // number of places before this node; SIZE_MAX: it may not host
  AvoidedPlaces avoided_;
  Mandate mandate_;
  std::string missing_;
  bool first_ = false;
};

/// Whether `last` was proposed to the node, which need not have accepted it.
bool took_part(const Round& last, const Hello& hello);

}  // namespace ddp::launch
