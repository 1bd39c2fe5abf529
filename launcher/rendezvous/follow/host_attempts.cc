#include "launcher/rendezvous/follow/host_attempts.h"

#include <fmt/format.h>

#include <cerrno>

#include "launcher/base/errors.h"
#include "launcher/base/system/sockets.h"
#include "launcher/rendezvous/wire/endpoint_lookup.h"

namespace ddp::launch {
namespace {

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

void HostAttempts::begin(std::vector<Place> places, std::chrono::milliseconds patience) {
  channel_.reset();
  places_ = std::move(places);
  patience_ = patience;
  next_ = 0;
  problem_.clear();
  try_next();
}

void HostAttempts::try_another(const std::string& why) {
  fail(why);
  try_next();
}

void HostAttempts::fail(const std::string& why) {
  problem_ = fmt::format("{}: {}", place_text(present_.address, present_.port), why);
  channel_.reset();
}

void HostAttempts::try_next() {
  while (!channel_ && next_ < places_.size()) {
    present_ = places_[next_++];
    connect();
  }
}

void HostAttempts::connect() {
  present_.address = reachable(present_.address);
  const auto address = parse_address(present_.address, present_.port);
  const int fd = address ? begin_connect(*address) : -1;
  refused_ = fd < 0 && errno == ECONNREFUSED;
  if (fd < 0) return fail(error_text(errno));
  give_up_ = Clock::now() + patience_;
  channel_ = std::make_unique<ControlChannel>(fd, ControlChannel::Side::kAgent, token_);
}

std::unique_ptr<ControlChannel> HostAttempts::take_channel() {
  if (!channel_ || channel_->state() != ControlChannel::State::kOpen) return nullptr;
  return std::move(channel_);
}

const ControlChannel* HostAttempts::closed() const {
  return channel_ && channel_->state() == ControlChannel::State::kClosed ? channel_.get() : nullptr;
}

void HostAttempts::add_poll_fds(std::vector<pollfd>& fds) const {
  if (channel_) fds.push_back({channel_->fd(), channel_->wanted(), 0});
}

void HostAttempts::handle(const std::vector<pollfd>&) {
  if (!channel_) return;
  channel_->handle();
  if (closed()) {
    refused_ = channel_->problem() == error_text(ECONNREFUSED);
  } else if (Clock::now() >= give_up_) {
    try_another(silence_of(*channel_));
  }
}

std::optional<Clock::time_point> HostAttempts::deadline() const {
  return channel_ ? std::optional(give_up_) : std::nullopt;
}

}  // namespace ddp::launch
