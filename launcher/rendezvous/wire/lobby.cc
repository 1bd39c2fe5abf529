#include "launcher/rendezvous/wire/lobby.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "launcher/base/errors.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/sockets.h"
#include "launcher/base/text.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr auto kGuestTime = std::chrono::seconds(5);
constexpr auto kNoteAgain = std::chrono::minutes(1);
constexpr std::size_t kMostGuests = 1'024;
constexpr std::size_t kSpareDescriptors = 128;  // for everything but nodes and guests
constexpr std::size_t kShown = 100;             // characters of a stranger's texts
constexpr int kGuestsAtOnce = 64;
constexpr int kGuestEvents = 64;

// A network of IPv6 counts as one machine, which may have any number of its addresses.
std::string origin_of(const std::string& address) {
  std::array<char, 16> bytes;
  if (::inet_pton(AF_INET6, address.c_str(), bytes.data()) != 1) return address;
  return {bytes.data(), 8};
}

epoll_event event_of(int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  return event;
}

}  // namespace

Lobby::Lobby(std::string place, std::string token, StoreClients store_clients)
    : place_(std::move(place)),
      token_(std::move(token)),
      store_clients_(std::move(store_clients)),
      acceptor_(place_),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      max_guests_(std::clamp<std::size_t>(descriptor_limit() / 4, 8, kMostGuests)) {
  if (epoll_.get() < 0)
    throw LaunchError(kExitFailed, "cannot listen for other nodes: " + error_text(errno));
}

std::size_t Lobby::descriptors_left() const {
  const std::size_t limit = descriptor_limit();
  return std::max(limit - std::min(limit, max_guests_ + kSpareDescriptors), limit / 10);
}

Lobby::~Lobby() {
  while (!guests_.empty()) drop(guests_.begin()->first);
  for (const int fd : listeners_) ::close(fd);
}

// ---- who comes in ------------------------------------------------------------------------------

void Lobby::listen(const std::vector<int>& sockets) {
  listeners_.insert(listeners_.end(), sockets.begin(), sockets.end());
  if (!acceptor_.rests_until()) watch_listeners();
}

void Lobby::watch_listeners() {
  for (const int fd : listeners_) {
    epoll_event event = event_of(fd, EPOLLIN);
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  }
}

std::vector<int> Lobby::take_listeners() {
  for (const int fd : listeners_) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  return std::exchange(listeners_, {});
}

// Not all at once: those that have spoken are judged in between, and make room for the next.
void Lobby::accept_some(int listener) {
  for (int i = 0; i < kGuestsAtOnce; ++i) {
    const int fd = acceptor_.accept(listener);
    if (fd < 0) break;
    enter(fd, {.until = Clock::now() + kGuestTime, .address = numeric_address(fd, /*peer=*/true)});
    epoll_event event = event_of(fd, EPOLLIN | EPOLLET);  // judging leaves the bytes there
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  }
  if (!acceptor_.rests_until()) return;
  for (const int fd : listeners_) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void Lobby::enter(int fd, Guest guest) {
  if (guests_.size() >= max_guests_) make_room();
  next_late_ = std::min(next_late_.value_or(guest.until), guest.until);
  ++by_origin_[origin_of(guest.address)];
  guests_[fd] = std::move(guest);
}

// At the expense of the address with the most connections: the oldest that has proved nothing.
void Lobby::make_room() {
  const auto largest =
      std::max_element(by_origin_.begin(), by_origin_.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto rank = [](const Guest& guest) {
    const bool open = guest.channel && guest.channel->state() == ControlChannel::State::kOpen;
    return std::pair(open && !guest.leaves, guest.until);
  };
  auto victim = guests_.end();
  for (auto it = guests_.begin(); it != guests_.end(); ++it) {
    if (origin_of(it->second.address) != largest->first) continue;
    if (victim == guests_.end() || rank(it->second) < rank(victim->second)) victim = it;
  }
  note(Concern::kCrowd,
       fmt::format("{} connections to {} have not joined the job, most of them from {}; the oldest "
                   "are closed",
                   max_guests_, place_, victim->second.address));
  drop(victim->first);
}

Lobby::Guest Lobby::let_go(int fd) {
  const auto found = guests_.find(fd);
  Guest guest = std::move(found->second);
  guests_.erase(found);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  const auto count = by_origin_.find(origin_of(guest.address));
  if (--count->second == 0) by_origin_.erase(count);
  return guest;
}

void Lobby::drop(int fd) {
  if (!let_go(fd).channel) ::close(fd);
}

void Lobby::drop_late(Clock::time_point now) {
  if (!next_late_ || now < *next_late_) return;
  next_late_.reset();
  std::vector<int> late;
  for (const auto& [fd, guest] : guests_) {
    if (now >= guest.until) {
      late.push_back(fd);
    } else {
      next_late_ = std::min(next_late_.value_or(guest.until), guest.until);
    }
  }
  for (const int fd : late) drop(fd);
}

void Lobby::send_away(std::unique_ptr<ControlChannel> channel, const ControlMessage& last_word) {
  const std::string address = channel->peer_address();
  channel->limit(ControlChannel::kForStrangers);
  channel->send(last_word);
  channel->finish_sending();
  const int fd = channel->fd();
  if (fd < 0) return;
  enter(fd, {.channel = std::move(channel),
             .until = Clock::now() + kGuestTime,
             .address = address,
             .leaves = true});
  epoll_event event = event_of(fd, 0);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  watch(fd, guests_.at(fd));
}

// ---- who it is ---------------------------------------------------------------------------------

void Lobby::judge(int fd, Guest& guest) {
  std::array<char, 8> start;
  const ssize_t got = ::recv(fd, start.data(), start.size(), MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const auto kind = got <= 0 ? FirstBytes::kUnknown
                             : judge_first_bytes({start.data(), static_cast<std::size_t>(got)});
  if (kind == FirstBytes::kIncomplete) return;
  if (kind == FirstBytes::kTcpStore) return pass_to_store(fd);
  if (kind == FirstBytes::kUnknown) return drop(fd);
  guest.channel = std::make_unique<ControlChannel>(fd, ControlChannel::Side::kHost, token_);
  guest.channel->limit(ControlChannel::kForStrangers);
  serve(fd, guest);
}

void Lobby::pass_to_store(int fd) {
  let_go(fd);  // before others can have copies of it
  if (store_clients_ && store_clients_(fd)) return;
  ::close(fd);
  note(
      Concern::kStore,
      fmt::format("a client of torch's TCPStore, such as torchrun's agent, connected to {} and was "
                  "rejected: all nodes must run ddp-run",
                  place_));
}

void Lobby::serve(int fd, Guest& guest) {
  ControlChannel& channel = *guest.channel;
  channel.handle();
  while (const auto message = channel.take()) {
    if (guest.leaves) continue;
    if (const auto* hello = std::get_if<Hello>(&*message)) return greet(fd, *hello);
    const auto* status = std::get_if<Status>(&*message);
    if (!status || status->run_id != status_.run_id) continue;
    heard_.push_back(*status);
    channel.send(status_);
  }
  if (channel.state() != ControlChannel::State::kClosed) return watch(fd, guest);
  note_objection(guest);
  drop(fd);
}

void Lobby::greet(int fd, const Hello& hello) {
  Guest guest = let_go(fd);
  if (hello.run_id == status_.run_id) {
    guest.channel->limit({});
    arrivals_.push_back({std::move(guest.channel), hello});
    return;
  }
  note(Concern::kJob,
       fmt::format("a node with --rdzv-id={} ({}, {}) was rejected: this job's is {}; use the same "
                   "on all nodes, or another port for another job",
                   printable(hello.run_id.substr(0, kShown)),
                   printable(hello.host.substr(0, kShown)), guest.address, status_.run_id));
  send_away(std::move(guest.channel),
            Refused{fmt::format("its job is not --rdzv-id={}; use the same id on all nodes, or "
                                "another port for another job",
                                hello.run_id)});
}

void Lobby::watch(int fd, Guest& guest) {
  const short wanted = guest.channel->wanted();
  if (wanted == guest.watched) return;
  guest.watched = wanted;
  epoll_event event = event_of(
      fd, ((wanted & POLLIN) != 0 ? EPOLLIN : 0U) | ((wanted & POLLOUT) != 0 ? EPOLLOUT : 0U));
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

// ---- messages to the user ----------------------------------------------------------------------

void Lobby::note_objection(const Guest& guest) {
  using Objection = ControlChannel::Objection;
  const auto objection = guest.channel->objection();
  if (objection == Objection::kWrongToken) {
    note(
        Concern::kToken,
        fmt::format("{} connected to {} and did not prove that it knows this job's token; if it is "
                    "a node of this job, give all nodes the same --rdzv-token-file",
                    guest.address, place_));
  }
  if (objection == Objection::kOtherVersion) {
    note(Concern::kVersion, fmt::format("{} connected to {} and was rejected: {}", guest.address,
                                        place_, guest.channel->problem()));
  }
}

void Lobby::note_refusal(const std::string& address, const std::string& why) {
  note(Concern::kRefused,
       fmt::format("a node at {} was rejected: {}", address, printable(why.substr(0, 3 * kShown))));
}

// Nobody can fill the log.
void Lobby::note(Concern concern, std::string text) {
  const auto now = Clock::now();
  const auto last = noted_.find(concern);
  if (last != noted_.end() && now < last->second + kNoteAgain) return;
  noted_[concern] = now;
  notes_.push_back(std::move(text));
}

std::string Lobby::take_note() {
  if (notes_.empty()) return acceptor_.take_warning();
  std::string text = std::move(notes_.front());
  notes_.erase(notes_.begin());
  return text;
}

// ---- the loop ----------------------------------------------------------------------------------

void Lobby::add_poll_fds(std::vector<pollfd>& fds) const {
  fds.push_back({epoll_.get(), POLLIN, 0});
}

std::optional<Clock::time_point> Lobby::deadline() const {
  return earlier(acceptor_.rests_until(), next_late_);
}

void Lobby::handle(const std::vector<pollfd>&) {
  const auto turn = Clock::now();
  if (acceptor_.wake()) watch_listeners();
  std::array<epoll_event, kGuestEvents> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), kGuestEvents, 0);
  for (int i = 0; i < count; ++i) {
    const int fd = events[static_cast<std::size_t>(i)].data.fd;
    if (std::find(listeners_.begin(), listeners_.end(), fd) != listeners_.end()) {
      accept_some(fd);
    } else if (const auto found = guests_.find(fd); found != guests_.end()) {
      found->second.channel ? serve(fd, found->second) : judge(fd, found->second);
    }
  }
  drop_late(turn);
}

}  // namespace ddp::launch
