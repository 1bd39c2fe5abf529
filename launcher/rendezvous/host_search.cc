#include "launcher/rendezvous/host_search.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/sockets.h"
#include "launcher/base/text.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr std::chrono::milliseconds kAttemptPatience{3'000};
constexpr std::chrono::milliseconds kFirstSearchPause{20};
constexpr std::chrono::milliseconds kLongestPause{250};
constexpr std::chrono::milliseconds kLongestLookupPause{2'000};  // each starts a process
constexpr auto kSilentSearch = std::chrono::seconds(5);
// A host closes its connections when it ends; more of them in a row are a foreign program's.
constexpr int kForeign = 4;

// torch's TCPStore ignores a greeting that is not its own.
std::string silence_of(const ControlChannel& channel) {
  return channel.state() == ControlChannel::State::Greeting
             ? "connected, but nothing answers as a ddp-run rendezvous (torchrun's agent, perhaps: "
               "all nodes must run ddp-run)"
             : "no answer";
}

// A wildcard address is for listening only.
std::string reachable(const std::string& address) {
  return address == "::" ? "::1" : address == "0.0.0.0" ? "127.0.0.1" : address;
}

}  // namespace

HostSearch::~HostSearch() {
  for (const int fd : listeners_) ::close(fd);
}

std::string HostSearch::endpoint_text() const { return endpoints_text(settings_.endpoints); }
std::string HostSearch::present_text() const { return place_text(present_.address, present_.port); }

void HostSearch::begin() {
  following_ = exhausted_ = false;
  began_ = Clock::now();
  attempt_patience_ = kAttemptPatience;
  pause_ = lookup_pause_ = kFirstSearchPause;
  look_up();
}

void HostSearch::follow(std::vector<HostCandidate> candidates, std::chrono::milliseconds patience) {
  following_ = true;
  exhausted_ = false;
  lookup_.reset();
  attempt_patience_ = std::min(patience, kAttemptPatience);
  candidates_ = std::move(candidates);
  next_ = 0;
  try_next();
}

void HostSearch::connect_to_self(const HostCandidate& place) {
  following_ = true;
  exhausted_ = false;
  attempt_patience_ = kAttemptPatience;
  candidates_ = {place};
  next_ = 0;
  try_next();
}

void HostSearch::try_another(const std::string& why) {
  problem_ = fmt::format("{}: {}", present_text(), why);
  channel_.reset();
  try_next();
}

void HostSearch::look_up() {
  state_ = State::LookingUp;
  next_lookup_ = Clock::now() + lookup_pause_;
  lookup_pause_ = std::min(2 * lookup_pause_, kLongestLookupPause);
  lookup_.emplace(settings_.endpoints);
  if (lookup_->done()) take_addresses();
}

void HostSearch::take_addresses() {
  endpoints_ = lookup_->results();
  lookup_.reset();
  take_candidates();
}

void HostSearch::take_candidates() {
  candidates_.clear();
  for (const auto& [endpoint, addresses] : endpoints_) {
    for (const std::string& address : addresses) candidates_.push_back({address, endpoint.port});
    if (addresses.empty()) problem_ = fmt::format("the name '{}' is not known", endpoint.host);
  }
  next_ = 0;
  if (!candidates_.empty() && try_to_host()) return;
  try_next();
}

// Returns true if listeners_ are open; the owner decides how to continue.
bool HostSearch::try_to_host() {
  if (!settings_.must_host && !settings_.may_host) return false;
  bool taken = false;
  own_places_.clear();
  own_rank_ = endpoints_.size();
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    if (listen_at(endpoints_[i], taken)) own_rank_ = std::min(own_rank_, i);
  }
  if (listeners_.empty() && settings_.must_host && !taken) {
    listen_anywhere(endpoints_.front(), taken);
    own_rank_ = 0;
  }
  if (taken && settings_.must_host) {
    throw LaunchError(kExitFailed,
                      fmt::format("cannot host the rendezvous at {}: {}; choose another port",
                                  endpoint_text(), error_text(EADDRINUSE)));
  }
  // Another agent of this machine hosts it at one of the addresses.
  if (taken) {
    for (const int fd : take_listeners()) ::close(fd);
    own_places_.clear();
  }
  state_ = listeners_.empty() ? state_ : State::Idle;
  return !listeners_.empty();
}

// Returns whether it listens there. A name that only this machine resolves to its loopback stands
// for all of its addresses.
bool HostSearch::listen_at(const ResolvedEndpoint& resolved, bool& taken) {
  const auto& [endpoint, addresses] = resolved;
  if (addresses.empty()) return false;
  const std::string& first = addresses.front();
  if (first != endpoint.host && is_loopback(first) && !is_localhost(endpoint.host))
    return listen_anywhere(resolved, taken);
  const std::size_t before = listeners_.size();
  for (const std::string& one : addresses) {
    const auto address = parse_address(one, endpoint.port);
    const int fd = address ? listen_on(*address) : -1;
    taken = taken || (fd < 0 && errno == EADDRINUSE);
    if (fd < 0) continue;
    listeners_.push_back(fd);
    own_places_.push_back({one, endpoint.port});
  }
  return listeners_.size() > before;
}

// The endpoint's address may be that of a service, or a translated one.
bool HostSearch::listen_anywhere(const ResolvedEndpoint& resolved, bool& taken) {
  const auto& [endpoint, addresses] = resolved;
  const int fd = listen_on_all(endpoint.port);
  taken = taken || (fd < 0 && errno == EADDRINUSE);
  if (fd < 0) return false;
  if (!addresses.empty() && is_loopback(addresses.front())) {
    note_ = fmt::format(
        "'{}' is {} on this machine (see /etc/hosts), where other nodes cannot reach it: the "
        "rendezvous listens on all addresses",
        endpoint.host, addresses.front());
  }
  listeners_.push_back(fd);
  own_places_.push_back({numeric_address(fd, /*peer=*/false), endpoint.port});
  hosts_elsewhere_ = endpoint.host;
  return true;
}

void HostSearch::try_next() {
  if (next_ < candidates_.size()) {
    present_ = candidates_[next_++];
    return connect();
  }
  if (following_) {
    state_ = State::Idle;
    exhausted_ = true;
    return;
  }
  state_ = State::Pausing;
  wake_ = Clock::now() + pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
}

void HostSearch::connect() {
  present_.address = reachable(present_.address);
  const auto address = parse_address(present_.address, present_.port);
  const int fd = address ? begin_connect(*address) : -1;
  refused_ = fd < 0 && errno == ECONNREFUSED;
  if (fd < 0) return try_another(error_text(errno));
  state_ = State::Connecting;
  wake_ = Clock::now() + attempt_patience_;
  channel_ = std::make_unique<ControlChannel>(fd, ControlChannel::Side::Agent, settings_.token);
}

void HostSearch::rest() {
  channel_.reset();
  state_ = State::Idle;
}

std::unique_ptr<ControlChannel> HostSearch::take_channel() {
  if (state_ != State::Connecting || channel_->state() != ControlChannel::State::Open)
    return nullptr;
  state_ = State::Found;
  foreign_closes_ = 0;
  return std::move(channel_);
}

void HostSearch::judge_closed() {
  const std::string why = channel_->problem();
  if (!following_ && channel_->objection() != ControlChannel::Objection::None)
    throw LaunchError(kExitFailed, endpoint_text() + ": " + why);
  refused_ = why == error_text(ECONNREFUSED);
  if (!refused_ && channel_->peer_is_gone()) ++foreign_closes_;
  if (foreign_closes_ >= kForeign && !following_) {
    throw LaunchError(
        kExitFailed,
        fmt::format("the server at {} closes the connection: it is not a ddp-run rendezvous "
                    "of this version (torchrun's agent, perhaps: all nodes must run the same "
                    "ddp-run)",
                    endpoint_text()));
  }
  try_another(why);
}

void HostSearch::add_poll_fds(std::vector<pollfd>& fds) const {
  if (state_ == State::LookingUp) lookup_->add_poll_fds(fds);
  if (state_ == State::Connecting) fds.push_back({channel_->fd(), channel_->wanted(), 0});
}

void HostSearch::handle(const std::vector<pollfd>&) {
  if (state_ == State::LookingUp) {
    lookup_->handle({});
    if (lookup_->done()) take_addresses();
  }
  if (state_ == State::Connecting) {
    channel_->handle();
    if (channel_->state() == ControlChannel::State::Closed) judge_closed();
  }
  keep_time();
}

void HostSearch::keep_time() {
  if (state_ == State::Idle || state_ == State::Found) return;
  const auto now = Clock::now();
  if (!following_ && now >= began_ + settings_.timeout) {
    throw LaunchError(
        kExitFailed,
        fmt::format("cannot reach the rendezvous at {} within {}: {}; check the address, that "
                    "ddp-run is running there, and that the port is not blocked",
                    endpoint_text(), seconds_text(settings_.timeout), problem_));
  }
  if (!following_ && !noted_ && now >= began_ + kSilentSearch) {
    noted_ = true;
    note_ = fmt::format("waiting for the rendezvous at {} ({}){}", endpoint_text(), problem_,
                        settings_.reach_note);
  }
  if (state_ == State::Connecting && now >= wake_) try_another(silence_of(*channel_));
  if (state_ != State::Pausing || now < wake_) return;
  // The host may have gone, and its name may have got another address.
  now >= next_lookup_ ? look_up() : take_candidates();
}

std::optional<Clock::time_point> HostSearch::deadline() const {
  if (state_ == State::Idle || state_ == State::Found) return std::nullopt;
  auto next = following_ ? Clock::time_point::max() : began_ + settings_.timeout;
  if (!following_ && !noted_) next = std::min(next, Clock::time_point(began_ + kSilentSearch));
  if (state_ != State::LookingUp) next = std::min(next, wake_);
  return next;
}

}  // namespace ddp::launch
