#include "launcher/store/tcp_store_server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/system/descriptors.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kReadAtOnce = 64 << 10;  // so that no client keeps the others waiting
constexpr int kEventsAtOnce = 256;
constexpr std::size_t kKeptOutput = 64 << 10;
constexpr auto kNewcomerTime = std::chrono::seconds(30);  // torch's clients send at once

void set_option(int fd, int level, int name) {
  const int on = 1;
  ::setsockopt(fd, level, name, &on, sizeof on);
}

bool try_again() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

TcpStoreServer::TcpStoreServer(const StoreLimits& limits)
    : limits_(limits),
      contents_(limits),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      max_newcomers_(std::max<std::size_t>(descriptor_limit() / 2, 8)),
      received_(kReadAtOnce) {
  if (epoll_.get() < 0) throw LaunchError(1, "the workers' store: " + error_text(errno));
}

void TcpStoreServer::adopt(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE);
  if (newcomers_ >= max_newcomers_) drop_oldest_newcomer();
  const Peer peer = ++last_peer_;
  Descriptor owned(fd);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = peer;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return;
  Client& client = clients_[peer];
  client.fd = std::move(owned);
  client.parser = RequestParser(limits_);
  client.events = event.events;
  ++newcomers_;
  arrivals_.emplace_back(Clock::now() + kNewcomerTime, peer);
}

void TcpStoreServer::drop_oldest_newcomer() {
  for (bool dropped = false; !dropped && !arrivals_.empty(); arrivals_.pop_front()) {
    const auto found = clients_.find(arrivals_.front().second);
    dropped = found != clients_.end() && !found->second.known;
    if (dropped) drop(found->first);
  }
}

void TcpStoreServer::drop_late(Clock::time_point now) {
  for (; !arrivals_.empty(); arrivals_.pop_front()) {
    const auto found = clients_.find(arrivals_.front().second);
    if (found == clients_.end() || found->second.known) continue;
    if (now < arrivals_.front().first) return;
    drop(found->first);
  }
}

std::optional<Clock::time_point> TcpStoreServer::deadline() const {
  return arrivals_.empty() ? std::nullopt : std::optional(arrivals_.front().first);
}

void TcpStoreServer::add_poll_fds(std::vector<pollfd>& fds) const {
  fds.push_back({epoll_.get(), POLLIN, 0});
}

void TcpStoreServer::handle(const std::vector<pollfd>& fds) {
  const auto turn = Clock::now();
  if (!is_ready(fds, epoll_.get()) && (arrivals_.empty() || turn < arrivals_.front().first)) return;
  std::array<epoll_event, kEventsAtOnce> events{};
  const int count = ::epoll_wait(epoll_.get(), events.data(), kEventsAtOnce, 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events.at(static_cast<std::size_t>(i));
    serve(event.data.u64, event.events);
  }
  if (count < kEventsAtOnce) drop_late(turn);  // none of them has anything unread
}

void TcpStoreServer::serve(Peer peer, std::uint32_t events) {
  const auto found = clients_.find(peer);
  if (found == clients_.end()) return;  // closed since
  Client& client = found->second;
  bool lives = (events & EPOLLOUT) == 0 || flush(client);
  if (lives && (events & ~EPOLLOUT) != 0) lives = receive(client);
  if (lives) lives = answer_requests(peer, client);
  if (!lives || !settle(peer, client)) drop(peer);
}

bool TcpStoreServer::receive(Client& client) {
  const ssize_t got = ::recv(client.fd.get(), received_.data(), received_.size(), 0);
  if (got == 0) return false;
  if (got < 0) return try_again();
  client.parser.feed({received_.data(), static_cast<std::size_t>(got)});
  return true;
}

// As long as it reads the answers. False: to be closed.
bool TcpStoreServer::answer_requests(Peer peer, Client& client) {
  for (;;) {
    const auto next = carry_out(peer, client);
    if (next == RequestParser::Next::kMalformed || !flush(client)) return false;
    const bool stopped_for_answers = next == RequestParser::Next::kComplete;
    if (!stopped_for_answers || client.unread() > 0) return true;
  }
}

// Complete: there may be more, but too many answers are unread.
RequestParser::Next TcpStoreServer::carry_out(Peer peer, Client& client) {
  Request request;
  while (client.unread() < limits_.unread) {
    const auto next = client.parser.next(request);
    if (next != RequestParser::Next::kComplete) return next;
    if (!std::exchange(client.known, true)) --newcomers_;
    answers_.clear();
    const bool done = contents_.apply(peer, std::move(request), answers_);
    for (auto& answer : answers_) deliver(answer, peer);
    if (!done && contents_.is_full()) tell_no_room();
    if (!done) return RequestParser::Next::kMalformed;
  }
  return RequestParser::Next::kComplete;
}

// Answers to `current` are sent together.
void TcpStoreServer::deliver(KeyValues::Answer& answer, Peer current) {
  Client& client = clients_.at(answer.to);
  if (client.output.empty()) {
    client.output = std::move(answer.bytes);
  } else {
    client.output.append(answer.bytes);
  }
  if (answer.to != current && !(flush(client) && settle(answer.to, client))) drop(answer.to);
}

bool TcpStoreServer::flush(Client& client) {
  while (client.unread() > 0) {
    const ssize_t sent =
        ::send(client.fd.get(), client.output.data() + client.sent, client.unread(), MSG_NOSIGNAL);
    if (sent < 0) return try_again();
    client.sent += static_cast<std::size_t>(sent);
  }
  client.sent = 0;
  client.output.clear();
  if (client.output.capacity() > kKeptOutput) client.output = {};
  return true;
}

// What is waited for next, and what its buffers take. False: there is no room for them.
bool TcpStoreServer::settle(Peer peer, Client& client) {
  const std::size_t now = client.parser.buffered() + client.output.size();
  buffered_ += now;
  buffered_ -= std::exchange(client.counted, now);
  if (buffered_ > limits_.buffers) {
    tell_no_room();
    return false;
  }
  std::uint32_t wanted = client.unread() < limits_.unread ? EPOLLIN : 0U;
  if (client.unread() > 0) wanted |= EPOLLOUT;
  if (wanted == std::exchange(client.events, wanted)) return true;
  epoll_event event{};
  event.events = wanted;
  event.data.u64 = peer;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, client.fd.get(), &event) == 0;
}

void TcpStoreServer::drop(Peer peer) {
  const auto found = clients_.find(peer);
  buffered_ -= found->second.counted;
  newcomers_ -= found->second.known ? 0 : 1;
  // By hand: as long as a child holds a copy of the descriptor, close would leave it there.
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second.fd.get(), nullptr);
  clients_.erase(found);
  contents_.forget(peer);
}

void TcpStoreServer::tell_no_room() {
  if (std::exchange(told_no_room_, true)) return;
  note_ = fmt::format(
      "the workers' store is full: it holds at most {} MiB, and {} MiB on their way; clients that "
      "want more are disconnected",
      limits_.contents >> 20U, limits_.buffers >> 20U);
}

}  // namespace ddp::launch
