#include "launcher/rendezvous/host/coordinator.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "launcher/base/errors.h"
#include "launcher/rendezvous/round/epochs.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

// Level-triggered events come round by round; small batches keep the round short.
constexpr int kNodesAtOnce = 16;
constexpr auto kTurn = std::chrono::milliseconds(10);
constexpr auto kStatusTime = std::chrono::seconds(5);  // the one that asks waits for 3 s
constexpr std::size_t kMostUnconfirmed = 2'048;

}  // namespace

Coordinator::Coordinator(const MembershipRules& rules, JobHistory history, std::string token,
                         std::vector<int> listeners, StoreClients store_clients)
    : membership_(rules, std::move(history), Clock::now()),
      token_(std::move(token)),
      store_clients_(std::move(store_clients)),
      lobby_("the rendezvous", token_,
             [this](int fd) {
               if (!store_clients_ || !membership_.has_begun()) return false;
               store_clients_(fd);
               return true;
             }),
      heartbeat_(rules.heartbeat),
      patience_(rules.patience()),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      max_connections_(lobby_.descriptors_left()),
      next_beat_(Clock::now() + rules.heartbeat),
      run_id_(rules.run_id),
      id_(rules.host_id),
      epochs_are_granted_(rules.epochs_are_granted) {
  if (epoll_.get() < 0)
    throw LaunchError(kExitFailed, "cannot host the rendezvous: " + error_text(errno));
  lobby_.listen(listeners);
}

void Coordinator::also_listen(int fd) {
  if (retired_) {
    ::close(fd);  // newcomers look for the next host
  } else {
    lobby_.listen({fd});
  }
}

std::vector<int> Coordinator::take_listeners() { return lobby_.take_listeners(); }

void Coordinator::set_place(const Place& place) { place_ = place; }

Status Coordinator::status() const {
  return {id_, run_id_, membership_.epoch(), /*hosts=*/true, place_.address, place_.port};
}

// A later round: this host was suspended or cut off meanwhile. An earlier one: another agent has
// begun a job of this name, and learns of this one by the answer. Where an authority keeps the
// epochs, it has this agent for the host, whatever others say.
void Coordinator::hear(const Status& status) {
  if (epochs_are_granted_) return;
  const long long known = membership_.epoch();
  if (status.run_id != run_id_ || status.id == id_) return;
  // Neither has begun a round: at first the endpoint's name has led each to itself only.
  const bool yields = known < 0 && status.epoch < 0 && status.hosts && !place_.address.empty() &&
                      Place{status.address, status.port} < place_;
  if (!yields && (status.epoch <= known || !can_follow(status.epoch, known))) return;
  superseded_by_ = status;
  membership_.retire();  // it has not stepped down yet
}

long long Coordinator::later_epoch() const {
  const bool lost = superseded_by_ && !superseded_by_->has_host();
  return std::max(
      {membership_.epoch(), membership_.later_epoch(), lost ? superseded_by_->epoch : -1});
}

bool Coordinator::has_lost_mandate() const {
  if (retired_) return false;
  return (superseded_by_ && !over()) || membership_.has_lost_mandate(turn_);
}

void Coordinator::grant_epoch(long long epoch) {
  membership_.grant_epoch(epoch, Clock::now());
  deliver();
}

void Coordinator::dismiss(const std::string& why) {
  for (auto& [node, connection] : connections_) {
    if (connection.id != id_) connection.channel->send(Refused{why});
  }
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

std::string Coordinator::take_note() { return lobby_.take_note(); }

void Coordinator::add_poll_fds(std::vector<pollfd>& fds) const {
  fds.push_back({epoll_.get(), POLLIN, 0});
  lobby_.add_poll_fds(fds);
  if (asking_ == 0) return;
  for (const auto& [node, connection] : connections_) {
    if (connection.inquiry) connection.inquiry->add_poll_fds(fds);
  }
}

std::optional<Clock::time_point> Coordinator::deadline() const {
  auto next = earlier(next_beat_, next_silence_);
  next = earlier(earlier(next, membership_.deadline()), lobby_.deadline());
  if (asking_ == 0) return next;
  for (const auto& [node, connection] : connections_) {
    if (connection.inquiry) next = earlier(next, connection.inquiry->deadline());
  }
  return next;
}

// What the others have sent meanwhile is still to be read. Those that have hung up are at work
// elsewhere, perhaps.
void Coordinator::forgive_own_silence() {
  if (turn_ - (next_beat_ - heartbeat_) < patience_) return;
  stalled_until_ = turn_;
  for (auto& [node, connection] : connections_) connection.heard = turn_;
}

void Coordinator::handle(const std::vector<pollfd>& fds) {
  turn_ = Clock::now();
  forgive_own_silence();
  lobby_.answer(status());
  lobby_.handle(fds);
  receive_newcomers();
  serve_some();
  keep_time();
  deliver();
  hand_over();
}

void Coordinator::receive_newcomers() {
  for (const Status& heard : lobby_.take_heard()) hear(heard);
  for (Follower& follower : lobby_.take_arrivals()) {
    if (connections_.size() < max_connections_) {
      adopt(std::move(follower));
    } else {
      lobby_.send_away(std::move(follower.channel),
                       Refused{"the host has no file descriptor left for it; raise the hard limit "
                               "there (ulimit -Hn)"});
    }
  }
}

// Not for long: the workers of this node need this process, too. About once each: whatever is still
// ready then is reported in the next turn.
void Coordinator::serve_some() {
  const auto end = Clock::now() + kTurn;
  std::array<epoll_event, kNodesAtOnce> events;
  auto left = static_cast<int>(connections_.size());
  int count = 0;
  do {
    count = ::epoll_wait(epoll_.get(), events.data(), kNodesAtOnce, 0);
    left -= count;
    for (int i = 0; i < count; ++i) {
      const int node = events[static_cast<std::size_t>(i)].data.fd;
      const auto found = connections_.find(node);
      if (found != connections_.end()) serve(node, found->second);
    }
  } while (count == kNodesAtOnce && left > 0 && Clock::now() < end);
}

// Watches what the channel wants. A closed one is lost in keep_time().
void Coordinator::watch(int node, Connection& connection) {
  const ControlChannel& channel = *connection.channel;
  if (channel.state() == ControlChannel::State::kClosed) {
    closed_.push_back(node);
    return;
  }
  const short wanted = channel.wanted();
  if (wanted == connection.watched) return;
  epoll_event event{};
  event.events =
      ((wanted & POLLIN) != 0 ? EPOLLIN : 0U) | ((wanted & POLLOUT) != 0 ? EPOLLOUT : 0U);
  event.data.fd = node;
  ::epoll_ctl(epoll_.get(), connection.watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, channel.fd(),
              &event);
  connection.watched = wanted;
}

void Coordinator::expect_word(const Connection& connection) {
  const auto silent = connection.heard + patience_;
  next_silence_ = std::min(next_silence_.value_or(silent), silent);
}

void Coordinator::serve(int node, Connection& connection) {
  const auto now = Clock::now();
  connection.channel->handle();
  while (const auto message = connection.channel->take()) {
    if (!connection.closing) receive(node, connection, *message, now);
  }
  watch(node, connection);
}

void Coordinator::receive(int node, Connection& connection, const ControlMessage& message,
                          Clock::time_point now) {
  connection.heard = connection.spoke = now;
  connection.session.receive(message);
  if (const auto* alive = std::get_if<Alive>(&message)) {
    connection.session.confirm(alive->received);
    connection.pace = alive->pace;
    if (alive->asks_status) connection.reads_status_until = now + kStatusTime;
    if (alive->stacks || alive->asks_status) beat(node, *alive);
    if (alive->status) pass_status(node, *alive->status);
  }
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
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection.channel->fd(), nullptr);
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
  for (const auto& text : connection.session.unconfirmed()) connection.channel->send_text(*text);
  serve(node, connection);
}

void Coordinator::adopt(Follower follower) {
  const int node = ++last_node_;
  Connection& connection = connections_[node];
  connection.channel = std::move(follower.channel);
  connection.heard = Clock::now();
  greet(node, follower.hello, connection.heard);
}

Alive Coordinator::alive_for(int node, const Connection& connection, const Done& done) const {
  Alive alive{.received = connection.session.received(), .straggler = stragglers_.current()};
  if (done) alive.partly_done = PartlyDone{done->first, node == done->second};
  return alive;
}

void Coordinator::pass_status(int node, const NodeStatus& status) {
  const auto done = membership_.partly_done();
  for (auto& [reader, connection] : connections_) {
    if (reader == node || turn_ >= connection.reads_status_until) continue;
    Alive alive = alive_for(reader, connection, done);
    alive.status = status;
    connection.channel->send(alive);
    if (!connection.inquiry) watch(reader, connection);
  }
}

// `asker`: the node whose questions the others get; 0: none.
void Coordinator::beat(int asker, const Alive& asked) {
  std::vector<NodePace> paces;
  for (const auto& [node, connection] : connections_) {
    if (connection.pace) paces.push_back(*connection.pace);
  }
  stragglers_.look(paces, Clock::now());
  const auto done = membership_.partly_done();
  for (auto& [node, connection] : connections_) {
    Alive alive = alive_for(node, connection, done);
    alive.stacks = asked.stacks && node != asker;
    alive.asks_status = asked.asks_status && node != asker;
    connection.channel->send(alive);
    if (!connection.inquiry) watch(node, connection);
  }
}

// Checks of all nodes run only when due, not at every wake-up.
void Coordinator::keep_time() {
  const auto now = turn_;
  if (now >= next_beat_) {
    next_beat_ = now + heartbeat_;
    beat();
  }
  for (const int node : std::exchange(closed_, {})) lose_closed(node, now);
  ask_lost(now);
  if (next_silence_ && now >= *next_silence_) lose_silent(now);
  membership_.tick(now);
}

// What many nodes get is made into text once, and kept once until they have confirmed it.
void Coordinator::deliver() {
  std::shared_ptr<const ControlMessage> message;
  std::shared_ptr<const std::string> text;
  for (auto& outgoing : membership_.take_outgoing()) {
    const auto found = connections_.find(outgoing.to);
    if (found == connections_.end()) continue;
    if (outgoing.message != message) {
      message = outgoing.message;
      text = std::make_shared<const std::string>(to_json_text(*message));
    }
    if (Session::counts(*message)) found->second.session.sent(text);
    found->second.channel->send_text(*text);
    if (found->second.session.unconfirmed().size() > kMostUnconfirmed)
      found->second.channel->give_up("it does not confirm what it gets");
    if (const auto* refused = std::get_if<Refused>(message.get()))
      lobby_.note_refusal(found->second.place.address, refused->why);
    if (outgoing.then_close) {
      found->second.closing = true;
      found->second.channel->finish_sending();
    }
    if (!found->second.inquiry) watch(found->first, found->second);
  }
}

void Coordinator::see_off(Clock::time_point limit) {
  serve_until(*this, limit, [this] { return connections_.empty(); });
}

}  // namespace ddp::launch
