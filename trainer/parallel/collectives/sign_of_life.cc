#include "trainer/parallel/collectives/sign_of_life.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <utility>

namespace ddp::train {
namespace {

using Clock = std::chrono::steady_clock;
using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses numeric_address(const std::string& address, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  return {error == 0 ? found : nullptr, &::freeaddrinfo};
}

Descriptor socket_for(const addrinfo& address) {
  return Descriptor(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

uint16_t port_of(int fd) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0) return 0;
  return ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(own).sin6_port
                                         : reinterpret_cast<const sockaddr_in&>(own).sin_port);
}

/// Waits for `events` of `fd`; false after the deadline, or at the end.
bool wait_for_socket(int fd, short events, Clock::time_point deadline, const EndEvent& end) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;
    std::array<pollfd, 2> polled = {{{fd, events, 0}, {end.fd(), POLLIN, 0}}};
    const int ready = ::poll(polled.data(), polled.size(), static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) continue;
    return ready > 0 && polled[1].revents == 0;
  }
}

enum class Answer { kAlive, kNone, kRefused };

/// One question. Nobody writes anything: the answer is the connection's end.
Answer ask_once(const addrinfo& address, Clock::time_point deadline, const EndEvent& end) {
  const auto refused = [](int error) {
    return error == ECONNREFUSED ? Answer::kRefused : Answer::kNone;
  };
  const Descriptor socket = socket_for(address);
  if (socket < 0) return Answer::kNone;
  const bool connected = ::connect(socket, address.ai_addr, address.ai_addrlen) == 0;
  if (!connected && errno != EINPROGRESS) return refused(errno);
  if (!connected && !wait_for_socket(socket, POLLOUT, deadline, end)) return Answer::kNone;
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0)
    return refused(error);
  if (!wait_for_socket(socket, POLLIN, deadline, end)) return Answer::kNone;
  char byte = 0;
  return ::recv(socket, &byte, 1, 0) == 0 ? Answer::kAlive : Answer::kNone;
}

/// Where nothing but the process itself can refuse a connection.
bool is_loopback(const addrinfo& address) {
  if (address.ai_family != AF_INET) return false;
  const auto& internet = *reinterpret_cast<const sockaddr_in*>(address.ai_addr);
  return ntohl(internet.sin_addr.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
}

}  // namespace

EndEvent::EndEvent() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void EndEvent::raise() const { ::eventfd_write(fd_, 1); }

bool EndEvent::wait_for(std::chrono::milliseconds time) const {
  pollfd polled{fd_, POLLIN, 0};
  return ::poll(&polled, 1, static_cast<int>(time.count())) > 0;
}

LifeSign::LifeSign(const std::string& address) {
  const auto own =
      address.empty() ? Addresses(nullptr, &::freeaddrinfo) : numeric_address(address, 0);
  if (!own || end_.fd() < 0) return;
  Descriptor socket = socket_for(*own);
  if (socket < 0 || ::bind(socket, own->ai_addr, own->ai_addrlen) != 0 ||
      ::listen(socket, SOMAXCONN) != 0)
    return;
  port_ = port_of(socket);
  listener_ = std::move(socket);
  thread_ = std::thread([this] { answer(); });
}

LifeSign::~LifeSign() {
  end_.raise();
  if (thread_.joinable()) thread_.join();
}

void LifeSign::answer() {
  while (true) {
    std::array<pollfd, 2> polled = {{{listener_, POLLIN, 0}, {end_.fd(), POLLIN, 0}}};
    if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return;
    if (polled[1].revents != 0) return;
    const Descriptor caller(::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC));
  }
}

bool gives_sign_of_life(const std::string& address, uint16_t port,
                        std::chrono::milliseconds patience, const EndEvent& end) {
  constexpr std::chrono::milliseconds kBetweenQuestions{100};
  const auto deadline = Clock::now() + patience;
  const auto target = numeric_address(address, port);
  if (!target) return false;
  do {
    const Answer answer = ask_once(*target, deadline, end);
    if (answer == Answer::kAlive) return true;
    if (answer == Answer::kRefused && is_loopback(*target)) return false;
  } while (!end.wait_for(kBetweenQuestions) && Clock::now() < deadline);
  return false;
}

}  // namespace ddp::train
