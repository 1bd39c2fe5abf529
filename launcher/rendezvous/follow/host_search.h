// Finds the agent that hosts the rendezvous, or that this agent may host it. A search resolves the
// job's endpoints, tries to listen there (EndpointSockets), connects to one after the other until
// the handshake with one of them is complete, and retries until timeout. If the host's place is
// known, it tries that once.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/system/poll_handler.h"
#include "launcher/rendezvous/wire/control_channel.h"
#include "launcher/rendezvous/wire/endpoint_lookup.h"
#include "launcher/rendezvous/wire/endpoint_sockets.h"
#include "launcher/rendezvous/wire/place.h"

namespace ddp::launch {

struct SearchSettings {
  std::vector<Endpoint> endpoints;  // names or numeric addresses; in order of preference
  bool must_host = false;           // even if no endpoint is an address of this machine
  std::string token{};
  std::chrono::milliseconds timeout{60'000};  // for the search at the endpoints
  std::string reach_note{};                   // as in MembershipRules
};

class HostSearch : public PollHandler {
 public:
  explicit HostSearch(SearchSettings settings) : settings_(std::move(settings)) {}

  /// Searches at the endpoints until the host is found or the timeout has passed. `may_host`:
  /// listens at those that are addresses of this machine.
  void begin(bool may_host);
  /// Tries each place once, for at most `patience`; then exhausted().
  void follow(std::vector<Place> places, std::chrono::milliseconds patience);
  /// Stops searching until begin() or follow().
  void rest();
  /// Restarts the search's timeout.
  void postpone() { began_ = Clock::now(); }
  bool follows() const { return following_ && !exhausted_; }
  /// Gives up the current place, which is not the host's, and tries the next one.
  void try_another(const std::string& why);

  /// Returns, once, the sockets that listen at endpoints, on which this agent may host the
  /// rendezvous; else empty. The search pauses.
  std::vector<int> take_listeners() { return sockets_.take(); }
  const EndpointSockets& own() const { return sockets_; }
  /// Returns, once, an open channel to a host. The search pauses until try_another().
  std::unique_ptr<ControlChannel> take_channel();
  bool exhausted() const { return exhausted_; }
  bool is_idle() const { return state_ == State::kIdle; }
  /// Whether nothing listens at the last place.
  bool was_refused() const { return refused_; }

  /// The place that is being tried or was found.
  const Place& present() const { return present_; }
  /// The endpoints as last resolved.
  const std::vector<ResolvedEndpoint>& endpoints() const { return endpoints_; }
  /// Returns, once, a line for the user about a long search.
  std::string take_note();

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  /// Throws LaunchError once the timeout has passed or the search cannot succeed.
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override;

 private:
  enum class State { kIdle, kLookingUp, kTrying, kPausing, kFound };

  void look_up();
  void take_addresses();
  void try_endpoints();
  bool try_to_host();
  void attempt(std::vector<Place> places, std::chrono::milliseconds patience);
  void try_next();
  void connect();
  void fail(const std::string& why);
  void handle_attempt(Clock::time_point turn);
  void judge_closed();
  void keep_time(Clock::time_point now);
  std::string endpoint_text() const { return endpoints_text(settings_.endpoints); }

  SearchSettings settings_;
  State state_ = State::kIdle;
  bool may_host_ = false;
  bool following_ = false;
  bool exhausted_ = false;
  // The attempts: the current one, and the places that are left.
  std::vector<Place> places_;
  std::size_t next_ = 0;
  std::chrono::milliseconds patience_{0};
  Place present_;
  std::unique_ptr<ControlChannel> channel_;
  Clock::time_point give_up_{};  // on the current place
  bool refused_ = false;

  EndpointSockets sockets_;
  std::optional<EndpointLookup> lookup_;
  std::vector<ResolvedEndpoint> endpoints_;
  int foreign_closes_ = 0;  // during the handshake, in a row
  std::string problem_;
  std::string note_;
  bool noted_ = false;

  Clock::time_point began_{};
  std::chrono::milliseconds pause_{0};
  std::chrono::milliseconds lookup_pause_{0};
  Clock::time_point next_lookup_{};
  Clock::time_point wake_{};  // Pausing: when to try the endpoints again
};

}  // namespace ddp::launch
