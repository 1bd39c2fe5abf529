#include "launcher/rendezvous/host/signpost.h"

namespace ddp::launch {
namespace {

constexpr auto kBeat = std::chrono::milliseconds(250);

}  // namespace

void Signpost::say(const Status& status, const std::optional<Place>& holder) {
  lobby_.answer(status);
  last_word_ = status;
  if (holder) {
    last_word_.address = holder->address;
    last_word_.port = holder->port;
  }
  if (!last_word_.has_host()) return;
  for (Follower& follower : take_followers())
    lobby_.send_away(std::move(follower.channel), last_word_);
}

void Signpost::receive_newcomers() {
  for (Follower& follower : lobby_.take_arrivals()) {
    follower.heard = Clock::now();
    const bool room = followers_.size() < lobby_.descriptors_left();
    // It takes this agent for the host that it has lost the connection to, and is not to wait here.
    const bool resumes = !follower.hello.session.empty();
    if (last_word_.has_host() || resumes || !room) {
      lobby_.send_away(std::move(follower.channel), last_word_);
    } else {
      followers_.push_back(std::move(follower));
    }
  }
}

// One that is silent may be with others by now, and counts no longer.
void Signpost::serve_followers() {
  const auto now = Clock::now();
  const bool beat = now >= next_beat_;
  if (beat) next_beat_ = now + kBeat;
  for (Follower& follower : followers_) {
    if (beat) follower.channel->send(Alive{});
    follower.channel->handle();
    while (follower.channel->take()) follower.heard = now;
  }
  std::erase_if(followers_, [&](const Follower& follower) {
    return follower.channel->state() == ControlChannel::State::kClosed ||
           now - follower.heard >= patience_;
  });
}

void Signpost::add_poll_fds(std::vector<pollfd>& fds) const {
  lobby_.add_poll_fds(fds);
  for (const auto& follower : followers_)
    fds.push_back({follower.channel->fd(), follower.channel->wanted(), 0});
}

void Signpost::handle(const std::vector<pollfd>& fds) {
  lobby_.handle(fds);
  receive_newcomers();
  serve_followers();
}

std::optional<Clock::time_point> Signpost::deadline() const {
  return followers_.empty() ? lobby_.deadline() : earlier(lobby_.deadline(), next_beat_);
}

}  // namespace ddp::launch
