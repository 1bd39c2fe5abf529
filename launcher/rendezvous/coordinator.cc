#include "launcher/rendezvous/coordinator.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr auto kHandshakePatience = std::chrono::seconds(5);
// More unproven connections are refused, so that a scanner uses up no descriptors.
constexpr std::size_t kMostNewcomers = 1024;
constexpr std::uint64_t kIsNode = std::uint64_t{1} << 32U;  // in epoll's data; else a descriptor

epoll_event event_of(int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = static_cast<std::uint64_t>(fd);
  return event;
}

}  // namespace

Coordinator::Coordinator(const MembershipRules& rules, JobHistory history, std::string token,
                         std::vector<int> listeners, StoreClients store_clients)
    : membership_(rules, std::move(history), Clock::now()),
      token_(std::move(token)),
      listeners_(std::move(listeners)),
      store_clients_(std::move(store_clients)),
      heartbeat_(rules.heartbeat),
      patience_(rules.patience()),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      next_beat_(Clock::now() + rules.heartbeat) {
  if (epoll_ < 0)
    throw LaunchError(kExitFailed, "cannot host the rendezvous: " + error_text(errno));
  for (const int fd : listeners_) {
    epoll_event event = event_of(fd, EPOLLIN);
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  }
}

void Coordinator::also_listen(int fd) {
  listeners_.push_back(fd);
  epoll_event event = event_of(fd, EPOLLIN);
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
}

Coordinator::~Coordinator() {
  for (const auto& [fd, since] : newcomers_) ::close(fd);
  for (const int fd : listeners_) ::close(fd);
  if (epoll_ >= 0) ::close(epoll_);
}

void Coordinator::add_poll_fds(std::vector<pollfd>& fds) const {
  fds.push_back({epoll_, POLLIN, 0});
}

std::optional<Clock::time_point> Coordinator::deadline() const {
  auto next = std::min(next_beat_, next_silence_.value_or(next_beat_));
  if (const auto of_membership = membership_.deadline()) next = std::min(next, *of_membership);
  return next;
}

// What the others have sent meanwhile is still to be read. Those that have hung up are at work
// elsewhere, perhaps.
void Coordinator::forgive_own_silence() {
  const auto now = Clock::now();
  if (now - (next_beat_ - heartbeat_) < patience_) return;
  stalled_until_ = now;
  for (auto& [node, connection] : connections_) connection.heard = now;
}

void Coordinator::handle(const std::vector<pollfd>&) {
  forgive_own_silence();
  std::array<epoll_event, 256> events;
  for (;;) {
    const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      const auto key = events[static_cast<std::size_t>(i)].data.u64;
      const int id = static_cast<int>(key & (kIsNode - 1));
      if (const auto found = connections_.find(id);
          (key & kIsNode) != 0 && found != connections_.end()) {
        serve(id, found->second);
      } else if (std::find(listeners_.begin(), listeners_.end(), id) != listeners_.end()) {
        accept_all(id);
      }
    }
    judge_newcomers();
    if (count < static_cast<int>(events.size())) break;
  }
  keep_time();
  deliver();
}

void Coordinator::accept_all(int listener) {
  for (;;) {
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    if (newcomers_.size() >= kMostNewcomers) {
      ::close(fd);
      continue;
    }
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    newcomers_[fd] = Clock::now();
    epoll_event event = event_of(fd, EPOLLIN | EPOLLET);
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  }
}

void Coordinator::judge_newcomers() {
  for (auto it = newcomers_.begin(); it != newcomers_.end();) {
    const int fd = it->first;
    std::array<char, 8> start;
    const ssize_t got = ::recv(fd, start.data(), start.size(), MSG_PEEK | MSG_DONTWAIT);
    const bool pending = got < 0 && (errno == EAGAIN || errno == EINTR);
    const auto kind = got <= 0 ? FirstBytes::Incomplete
                               : judge_first_bytes({start.data(), static_cast<std::size_t>(got)});
    const bool late = Clock::now() - it->second > kHandshakePatience;
    if ((pending || (got > 0 && kind == FirstBytes::Incomplete)) && !late) {
      ++it;
      continue;
    }
    it = newcomers_.erase(it);
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
    if (kind == FirstBytes::Agent && !only_store_) {
      admit(fd);
    } else if (kind == FirstBytes::TcpStore && store_clients_) {
      store_clients_(fd);
    } else {
      if (kind == FirstBytes::TcpStore && note_.empty()) {
        note_ =
            "a client of torch's TCPStore, such as torchrun's agent, has come to the rendezvous "
            "and "
            "was turned away: with --rdzv-backend=c10d all nodes must run ddp-run";
      }
      ::close(fd);
    }
  }
}

void Coordinator::only_serve_store() {
  only_store_ = true;
  // The last ones leave without a word: the members that are left form no job any more.
  connections_.clear();
}

void Coordinator::admit(int fd) {
  const int node = ++last_node_;
  Connection& connection = connections_[node];
  connection.channel = std::make_unique<ControlChannel>(fd, ControlChannel::Side::Host, token_);
  connection.heard = Clock::now();
  serve(node, connection);
}

void Coordinator::watch(int node, Connection& connection) {
  const ControlChannel& channel = *connection.channel;
  const short wanted = channel.wanted();
  if (wanted == connection.watched) return;
  epoll_event event{};
  event.events =
      ((wanted & POLLIN) != 0 ? EPOLLIN : 0U) | ((wanted & POLLOUT) != 0 ? EPOLLOUT : 0U);
  event.data.u64 = kIsNode | static_cast<std::uint64_t>(node);
  ::epoll_ctl(epoll_, connection.watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, channel.fd(),
              &event);
  connection.watched = wanted;
}

void Coordinator::serve(int node, Connection& connection) {
  ControlChannel& channel = *connection.channel;
  const auto now = Clock::now();
  channel.handle();
  while (const auto message = channel.take()) {
    if (connection.welcome) connection.heard = now;
    const auto* hello = std::get_if<Hello>(&*message);
    if (connection.welcome) {
      membership_.receive(node, *message, now);
    } else if (hello) {
      connection.welcome = true;
      connection.heard = now;
      membership_.hello(node, *hello, channel.peer_address(), now);
    }
  }
  if (channel.state() != ControlChannel::State::Closed) watch(node, connection);
}

void Coordinator::keep_time() {
  const auto now = Clock::now();
  if (now >= next_beat_) {
    next_beat_ = now + heartbeat_;
    for (auto& [node, connection] : connections_) {
      if (connection.welcome) connection.channel->send(Alive{});
    }
  }
  next_silence_.reset();
  for (auto it = connections_.begin(); it != connections_.end();) {
    auto& [node, connection] = *it;
    const bool closed = connection.channel->state() == ControlChannel::State::Closed;
    const auto patience = connection.welcome ? Clock::duration(patience_) : kHandshakePatience;
    const bool silent = now - connection.heard >= patience;
    const bool done = connection.closing && connection.channel->all_sent() && closed;
    if (!closed && !silent && !done) {
      next_silence_ =
          std::min(next_silence_.value_or(Clock::time_point::max()), connection.heard + patience);
      ++it;
      continue;
    }
    const std::string why =
        closed && connection.channel->peer_is_gone() ? "its ddp-run is gone"
        : closed                                     ? connection.channel->problem()
                 : fmt::format("nothing was heard of it for {}", seconds_text(patience_));
    const int lost = node;
    if (silent && connection.welcome) connection.channel->send(Refused{why});
    const bool certain = closed && now - stalled_until_ > heartbeat_;
    it = connections_.erase(it);
    membership_.lost(lost, why, now, certain);
  }
  membership_.tick(now);
}

void Coordinator::deliver() {
  for (auto& outgoing : membership_.take_outgoing()) {
    const auto found = connections_.find(outgoing.to);
    if (found == connections_.end()) continue;
    found->second.channel->send(outgoing.message);
    if (outgoing.then_close) {
      found->second.closing = true;
      found->second.channel->finish_sending();
    }
    if (found->second.channel->state() != ControlChannel::State::Closed)
      watch(found->first, found->second);
  }
}

void Coordinator::serve_until(Clock::time_point limit, const std::function<bool()>& ready) {
  while (!ready() && Clock::now() < limit) {
    std::vector<pollfd> fds;
    add_poll_fds(fds);
    const timespec left = time_until(std::min(limit, deadline().value_or(limit)));
    ::ppoll(fds.data(), fds.size(), &left, nullptr);
    handle(fds);
  }
}

void Coordinator::see_off(Clock::time_point limit) {
  serve_until(limit, [this] { return connections_.empty(); });
}

}  // namespace ddp::launch
