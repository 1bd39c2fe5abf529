#include "tests/launcher/rendezvous/simulated_network.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

extern "C" {
int __real_connect(int fd, const sockaddr* address, socklen_t size);
int __real_bind(int fd, const sockaddr* address, socklen_t size);
ssize_t __real_recv(int fd, void* bytes, size_t size, int flags);
ssize_t __real_send(int fd, const void* bytes, size_t size, int flags);
int __real_accept4(int fd, sockaddr* address, socklen_t* size, int flags);
int __real_poll(pollfd* fds, nfds_t count, int timeout);
int __real_ppoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask);
int __real_close(int fd);
}

namespace ddp::test {
namespace {

using Pair = std::pair<int, int>;

struct State {
  SimulatedNetwork::Time now{std::chrono::hours(1)};
  int acting = 0;
  std::mt19937_64 random{};
  bool progress = false;
  std::set<Pair> cut;
  std::set<int> dead;
  std::map<int, sockaddr_in> waiting;  // descriptors whose connect() goes nowhere
  std::map<int, Pair> ends;            // of connections: who owns the descriptor, and the other one
};

State& state() {
  static State all;
  return all;
}

int node_of(const sockaddr_in& address) {
  const auto host = ntohl(address.sin_addr.s_addr);
  return (host >> 24U) == 127 ? static_cast<int>(host & 0xffU) - 1 : -1;
}

bool is_cut(Pair pair) {
  return state().cut.count({std::min(pair.first, pair.second), std::max(pair.first, pair.second)}) >
         0;
}

int refuse(int error) {
  errno = error;
  return -1;
}

// The nodes at both ends of a descriptor; the same twice: no connection.
Pair ends_of(int fd) {
  const auto found = state().ends.find(fd);
  return found == state().ends.end() ? Pair{state().acting, state().acting} : found->second;
}

int connect_as(int fd, int node, const sockaddr_in& where) {
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl((127U << 24U) + static_cast<unsigned>(node) + 1);
  const int yes =
      1;  // the port is found by connect(), which takes less time with thousands of old ones
  ::setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes);
  __real_bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof own);
  state().ends[fd] = {node, node_of(where)};
  state().progress = true;
  return __real_connect(fd, reinterpret_cast<const sockaddr*>(&where), sizeof where);
}

}  // namespace

SimulatedNetwork::Time SimulatedNetwork::now() { return state().now; }
void SimulatedNetwork::advance_to(Time time) { state().now = std::max(state().now, time); }
void SimulatedNetwork::turn_back_to(Time time) { state().now = time; }
void SimulatedNetwork::act_as(int node) { state().acting = node; }
void SimulatedNetwork::seed(unsigned long seed) { state().random.seed(seed); }
std::string SimulatedNetwork::address_of(int node) {
  std::string text = "127.0.0.";
  return text.append(std::to_string(node + 1));
}
void SimulatedNetwork::cut(int a, int b) { state().cut.insert({std::min(a, b), std::max(a, b)}); }
void SimulatedNetwork::heal(int a, int b) { state().cut.erase({std::min(a, b), std::max(a, b)}); }
void SimulatedNetwork::heal_all() { state().cut.clear(); }
void SimulatedNetwork::kill(int node) { state().dead.insert(node); }
void SimulatedNetwork::revive(int node) { state().dead.erase(node); }
bool SimulatedNetwork::take_progress() { return std::exchange(state().progress, false); }

void SimulatedNetwork::reset(int a, int b) {
  sockaddr nowhere{};
  nowhere.sa_family = AF_UNSPEC;
  for (const auto& [fd, ends] : state().ends) {
    if (ends == Pair{a, b} || ends == Pair{b, a}) __real_connect(fd, &nowhere, sizeof nowhere);
  }
}

}  // namespace ddp::test

// ---- what the program calls instead of the system ---------------------------------------------

using ddp::test::ends_of;
using ddp::test::is_cut;
using ddp::test::refuse;
using ddp::test::state;

extern "C" {

int __wrap_connect(int fd, const sockaddr* address, socklen_t size) {
  if (address->sa_family != AF_INET) return __real_connect(fd, address, size);
  const auto where = *reinterpret_cast<const sockaddr_in*>(address);
  const int node = state().acting;
  if (!is_cut({node, ddp::test::node_of(where)})) return ddp::test::connect_as(fd, node, where);
  state().waiting[fd] = where;
  state().ends[fd] = {node, ddp::test::node_of(where)};
  return refuse(EINPROGRESS);
}

// A node has one address; the others are of other machines.
int __wrap_bind(int fd, const sockaddr* address, socklen_t size) {
  if (address->sa_family == AF_INET) {
    const int node = ddp::test::node_of(*reinterpret_cast<const sockaddr_in*>(address));
    if (node >= 0 && node != state().acting) return refuse(EADDRNOTAVAIL);
  }
  return __real_bind(fd, address, size);
}

ssize_t __wrap_recv(int fd, void* bytes, size_t size, int flags) {
  if (state().dead.count(state().acting) > 0) return refuse(ECONNRESET);
  if (is_cut(ends_of(fd))) return refuse(EAGAIN);
  const ssize_t got = __real_recv(fd, bytes, size, flags);
  if ((got >= 0 && (flags & MSG_PEEK) == 0) || (got < 0 && errno != EAGAIN))
    state().progress = true;
  return got;
}

ssize_t __wrap_send(int fd, const void* bytes, size_t size, int flags) {
  if (state().dead.count(state().acting) > 0) return refuse(EPIPE);
  if (is_cut(ends_of(fd))) return refuse(EAGAIN);
  const ssize_t sent = __real_send(fd, bytes, size, flags);
  if (sent > 0) state().progress = true;
  return sent;
}

int __wrap_accept4(int fd, sockaddr* address, socklen_t* size, int flags) {
  const int got = __real_accept4(fd, address, size, flags);
  if (got < 0) return got;
  sockaddr_in peer{};
  socklen_t length = sizeof peer;
  ::getpeername(got, reinterpret_cast<sockaddr*>(&peer), &length);
  state().ends[got] = {state().acting, ddp::test::node_of(peer)};
  state().progress = true;
  return got;
}

int __wrap_poll(pollfd* fds, nfds_t count, int timeout) {
  const auto found = count == 1 ? state().waiting.find(fds[0].fd) : state().waiting.end();
  if (found == state().waiting.end()) return __real_poll(fds, count, timeout);
  const auto where = found->second;
  if (is_cut({state().acting, ddp::test::node_of(where)})) return 0;
  state().waiting.erase(found);
  ddp::test::connect_as(fds[0].fd, state().acting, where);
  return 0;
}

// Nothing comes while only one node runs: the time is over at once.
int __wrap_ppoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  const timespec at_once{};
  state().now += std::chrono::seconds(timeout->tv_sec) + std::chrono::nanoseconds(timeout->tv_nsec);
  return __real_ppoll(fds, count, &at_once, mask);
}

int __wrap_close(int fd) {
  state().waiting.erase(fd);
  if (state().ends.erase(fd) > 0) state().progress = true;
  return __real_close(fd);
}

ssize_t __wrap_getrandom(void* bytes, size_t size, unsigned) {
  std::generate_n(static_cast<unsigned char*>(bytes), size,
                  [] { return static_cast<unsigned char>(state().random()); });
  return static_cast<ssize_t>(size);
}

std::chrono::steady_clock::time_point __wrap__ZNSt6chrono3_V212steady_clock3nowEv() {
  return state().now;
}

}  // extern "C"
