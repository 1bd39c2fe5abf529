#include "launcher/rendezvous/follow/host_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/system/sockets.h"
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

constexpr const char* kNoLookup = "no answer to the name lookup yet";

// torch's TCPStore ignores a greeting that is not its own.
std::string silence_of(const ControlChannel& channel) {
  return channel.state() == ControlChannel::State::kGreeting
             ? "connected, but nothing answers as a ddp-run rendezvous (torchrun's agent, perhaps: "
               "all nodes must run ddp-run)"
             : "no answer";
}

// A wildcard address is for listening only.
std::string reachable(const std::string& address) {
  return address == "::" ? "::1" : address == "0.0.0.0" ? "127.0.0.1" : address;
}

}  // namespace

std::string HostSearch::take_note() {
  const std::string note = sockets_.take_note();
  return note.empty() ? std::exchange(note_, {}) : note;
}

// ---- where the host is known --------------------------------------------------------------------

void HostSearch::follow(std::vector<Place> places, std::chrono::milliseconds patience) {
  following_ = true;
  exhausted_ = false;
  lookup_.reset();
  attempt(std::move(places), std::min(patience, kAttemptPatience));
}

// ---- at the endpoints ---------------------------------------------------------------------------

void HostSearch::begin(bool may_host) {
  may_host_ = may_host;
  following_ = exhausted_ = false;
  began_ = Clock::now();
  problem_ = kNoLookup;
  pause_ = lookup_pause_ = kFirstSearchPause;
  look_up();
}

void HostSearch::look_up() {
  state_ = State::kLookingUp;
  next_lookup_ = Clock::now() + lookup_pause_;
  lookup_pause_ = std::min(2 * lookup_pause_, kLongestLookupPause);
  lookup_.emplace(settings_.endpoints);
  if (lookup_->done()) take_addresses();
}

void HostSearch::take_addresses() {
  endpoints_ = lookup_->results();
  lookup_.reset();
  if (problem_ == kNoLookup) problem_ = "no answer yet";
  try_endpoints();
}

void HostSearch::try_endpoints() {
  std::vector<Place> places;
  for (const ResolvedEndpoint& one : endpoints_) {
    for (const std::string& address : one.addresses) places.push_back({address, one.endpoint.port});
    if (!one.addresses.empty()) continue;
    problem_ = fmt::format("the name '{}' is not known{}", one.endpoint.host,
                           one.lacks_getent ? ", as getent is not on PATH here" : "");
  }
  if (!places.empty() && try_to_host()) return;
  attempt(std::move(places), kAttemptPatience);
}

// Returns true if sockets are open; the owner decides how to continue.
bool HostSearch::try_to_host() {
  if (!may_host_) return false;
  sockets_.open(endpoints_, settings_.must_host);
  if (sockets_.taken() && settings_.must_host) {
    throw LaunchError(kExitFailed,
                      fmt::format("cannot host the rendezvous at {}: {}; choose another port",
                                  endpoint_text(), error_text(EADDRINUSE)));
  }
  if (sockets_.is_open()) state_ = State::kIdle;
  return sockets_.is_open();
}

// ---- attempts -----------------------------------------------------------------------------------

void HostSearch::attempt(std::vector<Place> places, std::chrono::milliseconds patience) {
  state_ = State::kTrying;
  channel_.reset();
  places_ = std::move(places);
  patience_ = patience;
  next_ = 0;
  try_next();
}

void HostSearch::try_another(const std::string& why) {
  state_ = State::kTrying;
  fail(why);
  try_next();
}

void HostSearch::fail(const std::string& why) {
  problem_ = fmt::format("{}: {}", place_text(present_), why);
  channel_.reset();
}

void HostSearch::try_next() {
  while (!channel_ && next_ < places_.size()) {
    present_ = places_[next_++];
    connect();
  }
  if (channel_) return;
  exhausted_ = following_;
  state_ = following_ ? State::kIdle : State::kPausing;
  wake_ = Clock::now() + pause_;
  if (!following_) pause_ = std::min(2 * pause_, kLongestPause);
}

void HostSearch::connect() {
  present_.address = reachable(present_.address);
  const auto address = parse_address(present_.address, present_.port);
  const int fd = address ? begin_connect(*address) : -1;
  refused_ = fd < 0 && errno == ECONNREFUSED;
  if (fd < 0) return fail(error_text(errno));
  give_up_ = Clock::now() + patience_;
  channel_ = std::make_unique<ControlChannel>(fd, ControlChannel::Side::kAgent, settings_.token);
}

void HostSearch::rest() {
  channel_.reset();
  state_ = State::kIdle;
}

std::unique_ptr<ControlChannel> HostSearch::take_channel() {
  if (state_ != State::kTrying || channel_->state() != ControlChannel::State::kOpen) return nullptr;
  state_ = State::kFound;
  foreign_closes_ = 0;
  return std::move(channel_);
}

void HostSearch::handle_attempt(Clock::time_point turn) {
  channel_->handle();
  if (channel_->state() == ControlChannel::State::kClosed) return judge_closed();
  if (turn >= give_up_) try_another(silence_of(*channel_));
}

void HostSearch::judge_closed() {
  const std::string why = channel_->problem();
  refused_ = why == error_text(ECONNREFUSED);
  if (!following_ && channel_->objection() != ControlChannel::Objection::kNone)
    throw LaunchError(kExitFailed, endpoint_text() + ": " + why);
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

// ---- the loop -----------------------------------------------------------------------------------

void HostSearch::add_poll_fds(std::vector<pollfd>& fds) const {
  if (state_ == State::kLookingUp) lookup_->add_poll_fds(fds);
  if (state_ == State::kTrying) fds.push_back({channel_->fd(), channel_->wanted(), 0});
}

void HostSearch::handle(const std::vector<pollfd>&) {
  const auto turn = Clock::now();
  if (state_ == State::kLookingUp) {
    lookup_->handle({});
    if (lookup_->done()) take_addresses();
  }
  if (state_ == State::kTrying) handle_attempt(turn);
  keep_time(turn);
}

void HostSearch::keep_time(Clock::time_point now) {
  if (state_ == State::kIdle || state_ == State::kFound) return;
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
  if (state_ != State::kPausing || now < wake_) return;
  // The host may have gone, and its name may have got another address.
  now >= next_lookup_ ? look_up() : try_endpoints();
}

std::optional<Clock::time_point> HostSearch::deadline() const {
  if (state_ == State::kIdle || state_ == State::kFound) return std::nullopt;
  auto next = following_ ? Clock::time_point::max() : began_ + settings_.timeout;
  if (!following_ && !noted_) next = std::min(next, Clock::time_point(began_ + kSilentSearch));
  if (state_ == State::kPausing) next = std::min(next, wake_);
  if (state_ == State::kTrying) next = std::min(next, give_up_);
  return next;
}

}  // namespace ddp::launch
