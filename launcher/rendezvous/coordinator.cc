#include "launcher/rendezvous/coordinator.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "launcher/base/descriptor_limit.h"
#include "launcher/base/errors.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr auto kHandshakePatience = std::chrono::seconds(5);
// The oldest unproven connection beyond this limit is closed, so that a scanner cannot use up the
// descriptors.
constexpr std::size_t kMostNewcomers = 4096;
constexpr int kAcceptedAtOnce = 256;
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
      max_newcomers_(std::min(kMostNewcomers, descriptor_limit() / 2)),
      next_beat_(Clock::now() + rules.heartbeat),
      run_id_(rules.run_id),
      id_(rules.host_id) {
  if (epoll_ < 0)
    throw LaunchError(kExitFailed, "cannot host the rendezvous: " + error_text(errno));
  for (const int fd : listeners_) listen_to(fd);
}

void Coordinator::listen_to(int listener) {
  epoll_event event = event_of(listener, EPOLLIN);
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, listener, &event);
}

void Coordinator::also_listen(int fd) {
  listeners_.push_back(fd);
  if (!acceptor_.rests_until()) listen_to(fd);
}

std::vector<int> Coordinator::take_listeners() {
  for (const int fd : listeners_) ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
  return std::exchange(listeners_, {});
}

void Coordinator::set_place(const Place& place) { place_ = place; }

Status Coordinator::status() const {
  return {id_, run_id_, membership_.epoch(), /*hosts=*/true, place_.address, place_.port};
}

// A later round: this host was suspended or cut off meanwhile. An earlier one: another agent has
// begun a job of this name, and learns of this one by the answer.
void Coordinator::hear(const Status& status) {
  if (status.run_id == run_id_ && status.id != id_ && status.epoch > membership_.epoch())
    superseded_by_ = status;
}

bool Coordinator::has_lost_mandate() const {
  if (retired_) return false;
  return (superseded_by_ && !over()) || membership_.has_lost_mandate(Clock::now());
}

void Coordinator::retire(bool hand_over) {
  membership_.retire();
  hands_over_ = hand_over && !retired_;
  retired_ = true;
}

// The others need not wait until the workers of this node have stopped.
void Coordinator::hand_over() {
  const auto own = std::find_if(connections_.begin(), connections_.end(),
                                [&](const auto& one) { return one.second.id == id_; });
  if (!hands_over_ || over() || own == connections_.end() || !membership_.is_leaving(own->first))
    return;
  hands_over_ = false;
  for (const int fd : take_listeners()) ::close(fd);
  for (auto& [node, connection] : connections_) {
    if (node == own->first) continue;
    connection.closing = true;
    connection.channel->finish_sending();
    if (!connection.inquiry) watch(node, connection);
  }
}

std::string Coordinator::take_note() {
  return note_.empty() ? acceptor_.take_warning() : std::exchange(note_, {});
}

Coordinator::~Coordinator() {
  for (const auto& [fd, since] : newcomers_) ::close(fd);
  for (const int fd : listeners_) ::close(fd);
  if (epoll_ >= 0) ::close(epoll_);
}

void Coordinator::add_poll_fds(std::vector<pollfd>& fds) const {
  fds.push_back({epoll_, POLLIN, 0});
  if (asking_ == 0) return;
  for (const auto& [node, connection] : connections_) {
    if (connection.inquiry) connection.inquiry->add_poll_fds(fds);
  }
}

std::optional<Clock::time_point> Coordinator::deadline() const {
  auto next = std::min(next_beat_, next_silence_.value_or(next_beat_));
  if (const auto of_membership = membership_.deadline()) next = std::min(next, *of_membership);
  next = std::min(next, next_late_.value_or(next));
  next = std::min(next, acceptor_.rests_until().value_or(next));
  if (asking_ == 0) return next;
  for (const auto& [node, connection] : connections_) {
    if (connection.inquiry) next = std::min(next, connection.inquiry->deadline().value_or(next));
  }
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
  if (acceptor_.wake()) {
    for (const int fd : listeners_) listen_to(fd);
  }
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
        accept_some(id);
      } else if (newcomers_.count(id) > 0) {
        judge_newcomer(id);
      }
    }
    if (count < static_cast<int>(events.size())) break;
  }
  keep_time();
  deliver();
  hand_over();
}

// Not all at once: those that have spoken are judged in between, and make room for the next.
void Coordinator::accept_some(int listener) {
  for (int i = 0; i < kAcceptedAtOnce; ++i) {
    const int fd = acceptor_.accept(listener);
    if (fd < 0) break;
    if (newcomers_.size() >= max_newcomers_) drop_oldest_newcomer();
    newcomers_[fd] = Clock::now();
    if (!next_late_) next_late_ = newcomers_[fd] + kHandshakePatience;
    epoll_event event = event_of(fd, EPOLLIN | EPOLLET);
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  }
  if (!acceptor_.rests_until()) return;
  for (const int fd : listeners_) ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
}

void Coordinator::drop_oldest_newcomer() {
  const auto oldest =
      std::min_element(newcomers_.begin(), newcomers_.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, oldest->first, nullptr);
  ::close(oldest->first);
  newcomers_.erase(oldest);
}

void Coordinator::judge_newcomer(int fd) {
  std::array<char, 8> start;
  const ssize_t got = ::recv(fd, start.data(), start.size(), MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const auto kind = got <= 0 ? FirstBytes::Unknown
                             : judge_first_bytes({start.data(), static_cast<std::size_t>(got)});
  if (kind == FirstBytes::Incomplete) return;
  newcomers_.erase(fd);
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
  if (kind == FirstBytes::Agent) return admit(fd);
  if (kind == FirstBytes::TcpStore && store_clients_ && membership_.has_begun())
    return store_clients_(fd);
  if (kind == FirstBytes::TcpStore && !std::exchange(store_client_came_, true)) {
    note_ =
        "a client of torch's TCPStore, such as torchrun's agent, connected to the rendezvous and "
        "was rejected: all nodes must run ddp-run";
  }
  ::close(fd);
}

void Coordinator::drop_late_newcomers(Clock::time_point now) {
  if (!next_late_ || now < *next_late_) return;
  next_late_.reset();
  for (auto it = newcomers_.begin(); it != newcomers_.end();) {
    const auto late = it->second + kHandshakePatience;
    if (now < late) {
      next_late_ = std::min(next_late_.value_or(late), late);
      ++it;
      continue;
    }
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, it->first, nullptr);
    ::close(it->first);
    it = newcomers_.erase(it);
  }
}

void Coordinator::admit(int fd) {
  const int node = ++last_node_;
  Connection& connection = connections_[node];
  connection.channel = std::make_unique<ControlChannel>(fd, ControlChannel::Side::Host, token_);
  connection.heard = Clock::now();
  expect_word(connection);
  serve(node, connection);
}

// Watches what the channel wants. A closed one is lost in keep_time().
void Coordinator::watch(int node, Connection& connection) {
  const ControlChannel& channel = *connection.channel;
  if (channel.state() == ControlChannel::State::Closed) {
    closed_.push_back(node);
    return;
  }
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

void Coordinator::expect_word(const Connection& connection) {
  const auto silent = connection.heard + patience_with(connection);
  next_silence_ = std::min(next_silence_.value_or(silent), silent);
}

Clock::duration Coordinator::patience_with(const Connection& connection) const {
  return connection.welcome ? Clock::duration(patience_) : kHandshakePatience;
}

void Coordinator::serve(int node, Connection& connection) {
  ControlChannel& channel = *connection.channel;
  const auto now = Clock::now();
  channel.handle();
  while (const auto message = channel.take()) {
    const auto* hello = std::get_if<Hello>(&*message);
    if (connection.welcome) {
      receive(node, connection, *message, now);
    } else if (hello) {
      return greet(node, *hello, now);
    } else if (const auto* status = std::get_if<Status>(&*message)) {
      hear(*status);
      channel.send(this->status());
    }
  }
  watch(node, connection);
}

void Coordinator::receive(int node, Connection& connection, const ControlMessage& message,
                          Clock::time_point now) {
  connection.heard = connection.spoke = now;
  connection.session.receive(message);
  if (const auto* alive = std::get_if<Alive>(&message)) connection.session.confirm(alive->received);
  membership_.receive(node, message, now);
}

void Coordinator::greet(int node, const Hello& hello, Clock::time_point now) {
  const auto known = std::find_if(connections_.begin(), connections_.end(), [&](const auto& one) {
    return one.first != node && one.second.id == hello.id;
  });
  if (known != connections_.end() && hello.session == id_ && !known->second.closing)
    return resume(node, known->first, hello);
  if (known != connections_.end()) {
    const int old = known->first;
    asking_ -= known->second.inquiry ? 1 : 0;
    connections_.erase(known);
    membership_.lost(old, "it has lost its part in the round", now, /*certain=*/false);
  }
  Connection& connection = connections_.at(node);
  connection.welcome = true;
  connection.heard = connection.spoke = now;
  connection.id = hello.id;
  connection.place = {connection.channel->peer_address(), hello.port};
  expect_word(connection);
  membership_.hello(node, hello, connection.place.address, now);
  serve(node, connection);
}

// Nobody else has to know.
void Coordinator::resume(int from, int node, const Hello& hello) {
  Connection& connection = connections_.at(node);
  connection.channel = std::move(connections_.at(from).channel);
  connections_.erase(from);
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, connection.channel->fd(), nullptr);
  connection.watched = 0;
  connection.heard = connection.spoke = Clock::now();
  asking_ -= connection.inquiry ? 1 : 0;
  connection.inquiry.reset();
  std::erase(closed_, node);
  connection.channel->send(Welcome{.node = node,
                                   .heartbeat = heartbeat_,
                                   .patience = patience_,
                                   .session = id_,
                                   .resumed = true,
                                   .received = connection.session.received()});
  connection.session.confirm(hello.received);
  for (const auto& message : connection.session.unconfirmed()) connection.channel->send(message);
  serve(node, connection);
}

void Coordinator::adopt(Follower follower) {
  const int node = ++last_node_;
  Connection& connection = connections_[node];
  connection.channel = std::move(follower.channel);
  connection.heard = Clock::now();
  greet(node, follower.hello, connection.heard);
}

void Coordinator::send(Connection& connection, const ControlMessage& message) {
  connection.session.sent(message);
  connection.channel->send(message);
}

// Checks of all nodes run only when due, not at every wake-up.
void Coordinator::keep_time() {
  const auto now = Clock::now();
  drop_late_newcomers(now);
  if (now >= next_beat_) {
    next_beat_ = now + heartbeat_;
    for (auto& [node, connection] : connections_) {
      if (!connection.welcome) continue;
      connection.channel->send(Alive{connection.session.received()});
      if (!connection.inquiry) watch(node, connection);
    }
  }
  for (const int node : std::exchange(closed_, {})) lose_closed(node, now);
  ask_lost(now);
  if (next_silence_ && now >= *next_silence_) lose_silent(now);
  membership_.tick(now);
}

void Coordinator::deliver() {
  for (auto& outgoing : membership_.take_outgoing()) {
    const auto found = connections_.find(outgoing.to);
    if (found == connections_.end()) continue;
    send(found->second, outgoing.message);
    if (outgoing.then_close) {
      found->second.closing = true;
      found->second.channel->finish_sending();
    }
    if (!found->second.inquiry) watch(found->first, found->second);
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
