// Finds the agent that hosts the rendezvous, or finds that this one has to host it: resolves the
// endpoint, tries to listen there, connects and completes the handshake, and retries until timeout.
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
#include "launcher/rendezvous/name_lookup.h"

namespace ddp::launch {

struct SearchSettings {
  std::string host;  // a name or a numeric address
  int port = 0;
  bool may_host = true;
  bool must_host = false;  // even if the endpoint is not an address of this machine
  std::string token{};
  std::chrono::milliseconds timeout{60'000};  // for the search at the endpoint
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

  /// Searches at the endpoint until the host is found or the timeout has passed.
  void begin();
  /// Tries each candidate once, for at most `patience`; then exhausted().
  void follow(std::vector<HostCandidate> candidates, std::chrono::milliseconds patience);
  /// This agent is the host: connects to itself, at the endpoint or at `place`.
  void connect_to_self();
  void connect_to_self(const HostCandidate& place);
  void forbid_hosting() { settings_.may_host = settings_.must_host = false; }
  /// The current candidate is not the host: tries the next one.
  void try_another(const std::string& why);

  /// Returns, once, the listening sockets on which this agent has to host the rendezvous; else
  /// empty.
  std::vector<int> take_listeners() { return std::exchange(listeners_, {}); }
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
  /// The endpoint's numeric addresses as last resolved.
  const std::vector<std::string>& endpoint_addresses() const { return endpoint_addresses_; }
  /// Whether other nodes reach this agent at the endpoint, not at the address of its socket.
  bool hosts_elsewhere() const { return hosts_elsewhere_; }
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
  bool try_to_host();
  bool reaches_only_this_machine() const;
  void listen_at_candidates(bool& taken);
  void listen_anywhere(bool& taken);
  void try_next();
  void connect();
  void judge_closed();
  void keep_time();

  SearchSettings settings_;
  State state_ = State::Idle;
  bool following_ = false;
  bool hosting_ = false;
  bool hosts_elsewhere_ = false;
  std::optional<NameLookup> lookup_;
  std::vector<HostCandidate> candidates_;
  std::vector<std::string> endpoint_addresses_;
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
  Clock::time_point wake_{};  // Connecting: end of the attempt; Pausing: start of the next one
};

}  // namespace ddp::launch
