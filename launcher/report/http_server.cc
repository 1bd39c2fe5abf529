#include "launcher/report/http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kMostConnections = 16;
constexpr std::size_t kLongestRequest = 8 << 10;

[[noreturn]] void cannot_listen(const Endpoint& endpoint, const std::string& why) {
  throw LaunchError(kExitUsage, fmt::format("--health-port={}:{}: {}; choose another one",
                                            endpoint.host, endpoint.port, why));
}

struct ListenAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

// Numeric addresses only: a name would need a resolver and could refer to other machines.
ListenAddress numeric_address(const Endpoint& endpoint) {
  const std::string host = endpoint.host == "localhost" ? "127.0.0.1" : endpoint.host;
  const auto port = htons(static_cast<std::uint16_t>(endpoint.port));
  ListenAddress address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = port;
    address.size = sizeof *v4;
  } else if (::inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = port;
    address.size = sizeof *v6;
  } else {
    cannot_listen(endpoint, "HOST must be an address of this machine, as in 0.0.0.0");
  }
  return address;
}

int open_listener(const Endpoint& endpoint) {
  const ListenAddress address = numeric_address(endpoint);
  const int fd = ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  if (fd >= 0) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const auto* where = reinterpret_cast<const sockaddr*>(&address.storage);
  if (fd < 0 || ::bind(fd, where, address.size) != 0 || ::listen(fd, SOMAXCONN) != 0) {
    const std::string why = error_text(errno);
    if (fd >= 0) ::close(fd);
    cannot_listen(endpoint, why);
  }
  return fd;
}

int spare_descriptor() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

const char* reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    default:
      return "Service Unavailable";
  }
}

}  // namespace

HttpServer::HttpServer(const Endpoint& endpoint, Responder responder)
    : responder_(std::move(responder)), listener_(open_listener(endpoint)) {
  port_ = port_of(listener_);
  spare_ = spare_descriptor();
  timer_ = ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
}

HttpServer::~HttpServer() {
  for (const Connection& connection : connections_) ::close(connection.fd);
  ::close(listener_);
  if (spare_ >= 0) ::close(spare_);
  if (timer_ >= 0) ::close(timer_);
}

void HttpServer::add_poll_fds(std::vector<pollfd>& fds) const {
  fds.push_back({resting_ ? timer_ : listener_, POLLIN, 0});
  for (const Connection& connection : connections_) {
    const short wanted = connection.answer.empty() ? POLLIN : POLLOUT;
    fds.push_back({connection.fd, wanted, 0});
  }
}

void HttpServer::handle(const std::vector<pollfd>& fds) {
  const auto is_ready = [&](int fd) {
    return std::any_of(fds.begin(), fds.end(),
                       [&](const pollfd& p) { return p.fd == fd && p.revents != 0; });
  };
  connections_.remove_if([&](Connection& connection) {
    if (!is_ready(connection.fd) || serve(connection)) return false;
    ::close(connection.fd);
    return true;
  });
  if (resting_ && is_ready(timer_)) end_rest();
  if (!resting_ && is_ready(listener_)) accept_all();
}

// A connection that can be neither accepted nor refused would wake the loop repeatedly.
void HttpServer::rest() {
  const itimerspec once{{0, 0}, {0, 200'000'000}};
  ::timerfd_settime(timer_, 0, &once, nullptr);
  resting_ = true;
}

void HttpServer::end_rest() {
  std::uint64_t times = 0;
  [[maybe_unused]] const auto got = ::read(timer_, &times, sizeof times);
  resting_ = false;
}

void HttpServer::accept_all() {
  for (;;) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE) && refuse_one()) continue;
    if (fd < 0) {
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) rest();
      return;
    }
    // When there are too many idle connections, drop the oldest.
    if (connections_.size() == kMostConnections) {
      ::close(connections_.front().fd);
      connections_.pop_front();
    }
    connections_.push_back({fd, "", ""});
  }
}

bool HttpServer::refuse_one() {
  if (spare_ < 0) spare_ = spare_descriptor();
  if (spare_ < 0) return false;
  ::close(spare_);
  const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  const int error = errno;
  if (fd >= 0) ::close(fd);
  spare_ = spare_descriptor();
  errno = error;
  return fd >= 0;
}

bool HttpServer::serve(Connection& connection) {
  if (connection.answer.empty()) {
    char buffer[4096];
    const ssize_t got = ::recv(connection.fd, buffer, sizeof buffer, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (got < 0) return true;
    connection.request.append(buffer, static_cast<std::size_t>(got));
    const bool complete = connection.request.find("\r\n\r\n") != std::string::npos ||
                          connection.request.find("\n\n") != std::string::npos;
    if (!complete && connection.request.size() < kLongestRequest) return true;
    connection.answer = answer_to(complete ? connection.request : "");
  }
  const std::string& answer = connection.answer;
  const ssize_t sent = ::send(connection.fd, answer.data(), answer.size(), MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  connection.answer.erase(0, static_cast<std::size_t>(sent));
  return !connection.answer.empty();
}

std::string HttpServer::answer_to(const std::string& request) const {
  const auto method_end = std::min(request.find(' '), request.size());
  const auto path_end = request.find_first_of(" ?\r\n", method_end + 1);
  const std::string method = request.substr(0, method_end);
  HttpAnswer answer{400, "text/plain", "not an HTTP request\n"};
  if (path_end != std::string::npos) {
    answer = method == "GET" || method == "HEAD"
                 ? responder_(request.substr(method_end + 1, path_end - method_end - 1))
                 : HttpAnswer{405, "text/plain", "only GET and HEAD are supported\n"};
  }
  const std::string head = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
      answer.status, reason(answer.status), answer.type, answer.body.size());
  return method == "HEAD" ? head : head + answer.body;
}

}  // namespace ddp::launch
