// What a node does that has lost its host. Pure: what it has found out goes in, one step comes out.
//
// The rule that keeps one job from becoming two: every round has an epoch, and its nodes are its
// electorate. Only an agent with a mandate of the last round may host the next one: more than half
// of its nodes follow it (half, if it hosted the last one itself), or all that are left. A node
// follows one agent at a time, and two majorities have a node in common. The next round begins when
// all of its nodes have accepted it; whoever has accepted a round knows its nodes, and whoever
// knows only an older one has to follow.
//
// "All that are left": a node counts as dead if it said goodbye or its machine refused a
// connection, and that was found while the last word of the host was fresh. Later, those that are
// dead now may have gone on without this node for a while, with others that it does not know.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/rendezvous/control_messages.h"
#include "launcher/rendezvous/inquiry.h"

namespace ddp::launch {

/// Words that are read sooner after a process was suspended may be older than that.
inline constexpr std::chrono::milliseconds kOldWords{100};

/// Who follows an agent, of the last round's nodes.
struct Mandate {
  int nodes = 0;      // of the last round; 0: there was none
  int followers = 0;  // the agent included
  int dead = 0;
  bool hosted = false;  // this agent hosted it

  bool holds() const {
    return nodes == 0 || 2 * followers > nodes || (hosted && 2 * followers == nodes) ||
           followers >= nodes - dead;
  }
};

class Succession {
 public:
  struct Step {
    enum class Kind {
      Wait,
      Connect,  // to `place`, which hosts the rendezvous or may come to
      Host,
    };
    Kind kind = Kind::Wait;
    Place place{};
  };

  /// `host`: where the last host was; nothing: this agent. `fresh_until`: deaths found later do not
  /// count.
  Succession(const Round& last, int own_node, std::optional<Place> host, std::string host_id,
             Clock::time_point fresh_until);

  /// Of all nodes but this one, in the order of succession; the last host first.
  const std::vector<Place>& places() const { return places_; }
  /// A connection to it led nowhere: not tried again for a while.
  void avoid(const Place& place, Clock::time_point until);
  /// `findings`: of places(). `followers`: those that are held here. `alone`: no mandate is needed.
  Step next(const std::vector<Inquiry::Finding>& findings, const std::vector<Hello>& followers,
            bool alone, Clock::time_point now);
  Mandate mandate() const { return mandate_; }
  /// "10.0.0.1:29400 is silent, 10.0.0.2:3421 is gone", for the line about waiting.
  std::string missing() const { return missing_; }
  /// No other node is asked before this one hosts.
  bool is_first() const { return first_; }

 private:
  void note_replaced(const std::vector<Inquiry::Finding>& findings, Clock::time_point now);
  bool avoided(const Place& place, Clock::time_point now) const;
  bool is_dead(std::size_t i, const Inquiry::Finding& finding) const;
  std::optional<Step> follow_host(const std::vector<Inquiry::Finding>& findings,
                                  Clock::time_point now) const;
  void count(const std::vector<Inquiry::Finding>& findings, const std::vector<Hello>& followers);

  long long epoch_;
  int nodes_;
  bool hosted_;
  std::string host_id_;
  Clock::time_point fresh_until_;
  std::optional<Clock::time_point> replaced_{};  // the last host, by another agent at its place
  std::vector<Place> places_;
  std::size_t own_place_;  // as many come before
  std::vector<std::pair<Place, Clock::time_point>> avoided_;
  Mandate mandate_;
  std::string missing_;
  bool first_ = false;
};

/// Whether a node that has accepted the round `epoch`, and was reached there, was one of `last`.
bool took_part(const Round& last, long long epoch, const std::string& address, int port);

}  // namespace ddp::launch
