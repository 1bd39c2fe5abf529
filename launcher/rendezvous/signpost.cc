#include "launcher/rendezvous/signpost.h"

#include <unistd.h>

#include <algorithm>

namespace ddp::launch {
namespace {

constexpr auto kCallerTime = std::chrono::seconds(5);
constexpr auto kBeat = std::chrono::milliseconds(250);
constexpr std::size_t kMostCallers = 4096;

}  // namespace

Signpost::~Signpost() {
  for (const int fd : listeners_) ::close(fd);
}

void Signpost::listen(const std::vector<int>& sockets) {
  listeners_.insert(listeners_.end(), sockets.begin(), sockets.end());
}

void Signpost::say(const Status& status) {
  status_ = status;
  if (!status.has_host()) return;
  for (Follower& follower : take_followers()) send_away(std::move(follower.channel));
}

void Signpost::send_away(std::unique_ptr<ControlChannel> channel) {
  channel->send(status_);
  channel->finish_sending();
  callers_.push_back({std::move(channel), Clock::now() + kCallerTime});
}

void Signpost::accept() {
  for (const int listener : listeners_) {
    int fd = -1;
    while (callers_.size() < kMostCallers && (fd = acceptor_.accept(listener)) >= 0) {
      callers_.push_back({std::make_unique<ControlChannel>(fd, ControlChannel::Side::Host, token_),
                          Clock::now() + kCallerTime});
    }
  }
}

void Signpost::serve_callers() {
  const auto now = Clock::now();
  std::vector<Caller> callers = std::exchange(callers_, {});
  for (Caller& caller : callers) {
    caller.channel->handle();
    bool follows = false;
    while (const auto message = caller.channel->take()) {
      if (const auto* status = std::get_if<Status>(&*message)) {
        heard_.push_back(*status);
        caller.channel->send(status_);
      }
      const auto* hello = std::get_if<Hello>(&*message);
      if (!hello || follows) continue;
      follows = true;
      if (status_.has_host() || hello->run_id != status_.run_id) {
        send_away(std::move(caller.channel));
      } else {
        followers_.push_back({std::move(caller.channel), *hello});
      }
      break;
    }
    if (follows || now >= caller.until || caller.channel->state() == ControlChannel::State::Closed)
      continue;
    callers_.push_back(std::move(caller));
  }
}

void Signpost::serve_followers() {
  const bool beat = Clock::now() >= next_beat_;
  if (beat) next_beat_ = Clock::now() + kBeat;
  for (Follower& follower : followers_) {
    if (beat) follower.channel->send(Alive{});
    follower.channel->handle();
  }
  std::erase_if(followers_, [](const Follower& follower) {
    return follower.channel->state() == ControlChannel::State::Closed;
  });
}

void Signpost::add_poll_fds(std::vector<pollfd>& fds) const {
  if (!acceptor_.rests_until()) {
    for (const int fd : listeners_) fds.push_back({fd, POLLIN, 0});
  }
  for (const auto& caller : callers_)
    fds.push_back({caller.channel->fd(), caller.channel->wanted(), 0});
  for (const auto& follower : followers_)
    fds.push_back({follower.channel->fd(), follower.channel->wanted(), 0});
}

void Signpost::handle(const std::vector<pollfd>&) {
  acceptor_.wake();
  accept();
  serve_callers();
  serve_followers();
}

std::optional<Clock::time_point> Signpost::deadline() const {
  std::optional<Clock::time_point> next = acceptor_.rests_until();
  for (const Caller& caller : callers_) next = std::min(next.value_or(caller.until), caller.until);
  if (!followers_.empty()) next = std::min(next.value_or(next_beat_), next_beat_);
  return next;
}

}  // namespace ddp::launch
