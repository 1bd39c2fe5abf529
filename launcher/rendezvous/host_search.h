// Finds the agent that hosts the rendezvous, or finds that this one may host it: resolves the
// endpoints, tries to listen there, connects and completes the handshake, and retries until
// timeout.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/poll_handler.h"
#include "launcher/rendezvous/control_channel.h"
#include "launcher/rendezvous/endpoint_lookup.h"

namespace ddp::launch {

struct SearchSettings {
  std::vector<Endpoint> endpoints;  // names or numeric addresses; in order of preference
  bool may_host = true;
  bool must_host = false;  // even if no endpoint is an address of this machine
  std::string token{};
  std::chrono::milliseconds timeout{60'000};  // for the search at the endpoints
  std::string reach_note{};                   // as in MembershipRules
};

/// Where the host may be.
struct HostCandidate {
  std::string address;  // numeric
  int port = 0;
};

class HostSearch : public PollHandler {
 public:
  explicit HostSearch(SearchSettings settings) : settings_(std::move(settings)) {}
  ~HostSearch() override;
  HostSearch(const HostSearch&) = delete;
  HostSearch& operator=(const HostSearch&) = delete;

  /// Searches at the endpoints until the host is found or the timeout has passed.
  void begin();
  /// Tries each candidate once, for at most `patience`; then exhausted().
  void follow(std::vector<HostCandidate> candidates, std::chrono::milliseconds patience);
  /// This agent is the host: connects to itself.
  void connect_to_self(const HostCandidate& place);
  void forbid_hosting() { settings_.may_host = settings_.must_host = false; }
  /// Stops searching until begin() or follow().
  void rest();
  /// Starts the timeout of the search anew.
  void postpone() { began_ = Clock::now(); }
  bool follows() const { return following_ && !exhausted_; }
  bool may_host() const { return settings_.may_host || settings_.must_host; }
  /// The current candidate is not the host: tries the next one.
  void try_another(const std::string& why);

  /// Returns, once, the sockets that listen at endpoints, on which this agent may host the
  /// rendezvous; else empty. The search pauses.
  std::vector<int> take_listeners() { return std::exchange(listeners_, {}); }
  /// Where those sockets are, and the number of endpoints before the first of them.
  const std::vector<HostCandidate>& own_places() const { return own_places_; }
  std::size_t own_rank() const { return own_rank_; }
  /// Returns, once, an open channel to a host. The search pauses until try_another().
  std::unique_ptr<ControlChannel> take_channel();
  bool exhausted() const { return exhausted_; }
  bool is_idle() const { return state_ == State::Idle; }
  /// Whether nothing listens at the last candidate's place.
  bool was_refused() const { return refused_; }

  /// The candidate that is being tried or was found: "10.0.0.1:29400".
  const HostCandidate& present() const { return present_; }
  std::string present_text() const;
  std::string endpoint_text() const;
  /// The endpoints as last resolved.
  const std::vector<ResolvedEndpoint>& endpoints() const { return endpoints_; }
  /// The endpoint's name, if other nodes reach this agent there and not at the address of its
  /// socket; else empty.
  const std::string& hosts_elsewhere() const { return hosts_elsewhere_; }
  /// Returns, once, a line for the user about a long search.
  std::string take_note() { return std::exchange(note_, {}); }

  void add_poll_fds(std::vector<pollfd>& fds) const override;
  /// Throws LaunchError once the timeout has passed or the search cannot succeed.
  void handle(const std::vector<pollfd>& fds) override;
  std::optional<Clock::time_point> deadline() const override;

 private:
  enum class State { Idle, LookingUp, Connecting, Pausing, Found };

  void look_up();
  void take_addresses();
  void take_candidates();
  bool try_to_host();
  bool listen_at(const ResolvedEndpoint& endpoint, bool& taken);
  bool listen_anywhere(const ResolvedEndpoint& endpoint, bool& taken);
  void try_next();
  void connect();
  void judge_closed();
  void keep_time();

  SearchSettings settings_;
  State state_ = State::Idle;
  bool following_ = false;
  std::string hosts_elsewhere_;
  std::optional<EndpointLookup> lookup_;
  std::vector<HostCandidate> candidates_;
  std::vector<ResolvedEndpoint> endpoints_;
  std::vector<HostCandidate> own_places_;
  std::size_t own_rank_ = 0;
  std::size_t next_ = 0;
  HostCandidate present_;
  std::unique_ptr<ControlChannel> channel_;
  std::vector<int> listeners_;
  bool exhausted_ = false;
  bool refused_ = false;
  int foreign_closes_ = 0;  // during the handshake, in a row
  std::string problem_;
  std::string note_;
  bool noted_ = false;

  Clock::time_point began_{};
  std::chrono::milliseconds attempt_patience_{0};
  std::chrono::milliseconds pause_{0};
  std::chrono::milliseconds lookup_pause_{0};
  Clock::time_point next_lookup_{};
  Clock::time_point wake_{};  // Connecting: end of the attempt; Pausing: start of the next one
};

}  // namespace ddp::launch
