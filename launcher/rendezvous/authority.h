// Decides which agent hosts a job, and which epochs its rounds get. Two implementations: an
// election among the nodes of the last round (Election), and an etcd cluster (launcher/etcd/).
// Agents talk to their host in the same way under both.
//
// Both guarantee that at most one agent may begin a round of a job at a time, and that epochs only
// grow.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/system/poll_handler.h"
#include "launcher/rendezvous/round/job_history.h"
#include "launcher/rendezvous/round/last_round.h"
#include "launcher/rendezvous/wire/control_messages.h"
#include "launcher/rendezvous/wire/inquiry.h"

namespace ddp::launch {

class Authority : public PollHandler {
 public:
  struct Step {
    enum class Kind {
      kWait,
      kConnect,  // to `place`, which hosts the rendezvous or may come to
      kHost,
    };
    Kind kind = Kind::kWait;
    Place place{};
  };

  /// A host that this node has lost, and the last round known here.
  struct Loss {
    LastRound last{};
    std::optional<Place> host{};  // the lost one, of that round or since; nullopt: this agent
    std::string host_id{};
    bool gone = false;                           // whether its machine refuses connections
    std::chrono::milliseconds patience{15'000};  // how long a peer may be silent
    Clock::time_point fresh_until{};             // deaths found later do not count
    std::string text{};                          // why it was lost
  };

  /// This agent's knowledge at each call.
  struct View {
    Clock::time_point now{};
    Place own{};                                // where it would host; port 0: not known yet
    std::vector<Hello> followers{};             // nodes of the last round that are held here
    std::vector<Hello> later{};                 // nodes held here that have accepted a later round
    std::vector<Inquiry::Finding> endpoints{};  // results of queries there
  };

  /// Whether the authority finds a node's first host; otherwise the endpoints do.
  virtual bool finds_first_host() const { return false; }
  /// The address at which other machines reach this one; empty if unknown.
  virtual std::string own_address() const { return ""; }
  /// Starts to look for a host, as this node has none; `status`: its reply to other agents.
  virtual void seek(std::optional<Loss> loss, const Status& status) = 0;
  /// Returns the next step while this node has no host. May throw LaunchError if it has no round.
  virtual Step next(const View& view) = 0;
  /// Records that the connection to `place` did not yield a host.
  virtual void avoid(const Place& place) = 0;
  /// Records that this node has a host: itself, if it `hosts`, or another agent.
  virtual void settle(bool hosts) = 0;
  /// Returns, once, a line for the user about what the authority waits for.
  virtual std::string take_note() = 0;
  /// Returns why it has given up after join_timeout; empty if it has not.
  virtual std::string despair() const = 0;

  /// Call after Step::Kind::kHost: adds to the new host's knowledge of the job.
  virtual void hand_down(JobHistory& history) const = 0;
  /// Whether rounds need an epoch from request_epoch().
  virtual bool grants_epochs() const { return false; }
  /// Requests an epoch for a round of these nodes; none: the host is not ready for one (any more).
  virtual void request_epoch(const std::vector<Hello>&) {}
  /// Returns, once, the epoch of the round that may begin now.
  virtual std::optional<long long> take_epoch() { return std::nullopt; }
  /// Returns why this host's round must stop at once and no other may begin; empty while it hosts.
  virtual std::string deposed() const = 0;
  /// Resigns as the host: another agent may take its place.
  virtual void resign() = 0;
  /// Ends the job.
  virtual void end_job() = 0;
};

}  // namespace ddp::launch
