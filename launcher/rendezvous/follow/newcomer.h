// Decides what a node without a host does that could become one: it asks the other endpoints and
// the last known members before it hosts. Pure: findings go in, one step comes out.
//
// It hosts only if every one of them refused the connection or replied that it has no job. If there
// are several such nodes at different endpoints, the one at the first endpoint hosts.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launcher/rendezvous/round/succession.h"
#include "launcher/rendezvous/wire/inquiry.h"

namespace ddp::launch {

/// A place to ask.
struct Lead {
  Place place;
  bool precedes = false;  // an endpoint before this node's own
};

class Newcomer {
 public:
  using Step = Succession::Step;

  /// `id`: this agent's; `epoch`: of the last round that it accepted before it was restarted.
  Newcomer(std::vector<Lead> leads, std::string id, long long epoch);

  std::vector<Place> places() const;
  /// Does not try `place`, where a connection failed, again before `until`.
  void avoid(const Place& place, Clock::time_point until) { avoided_.avoid(place, until); }
  /// Returns the next step. `findings`: for places(). `alone`: does not wait for silent places.
  Step next(const std::vector<Inquiry::Finding>& findings, bool alone, Clock::time_point now);
  /// "10.0.0.1:29400 is silent, ...", for the message about waiting; empty if all have replied.
  std::string missing() const { return missing_; }

 private:
  bool is_own(const Inquiry::Finding& finding) const { return finding.status.id == id_; }

  std::vector<Lead> leads_;
  std::string id_;
  long long epoch_;
  AvoidedPlaces avoided_;
  std::string missing_;
};

}  // namespace ddp::launch
