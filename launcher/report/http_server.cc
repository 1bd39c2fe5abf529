#include "launcher/report/http_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kMostConnections = 64;
constexpr int kAcceptedAtOnce = 64;  // then the agent's other work has its turn
constexpr std::size_t kLongestRequest = 8 << 10;
// A connection that can be neither accepted nor refused would wake the loop repeatedly.
constexpr std::chrono::milliseconds kRest{200};

[[noreturn]] void cannot_listen(const Endpoint& endpoint, const std::string& why) {
  throw LaunchError(kExitUsage, fmt::format("--health-port={}:{}: {}; choose another one",
                                            endpoint.host, endpoint.port, why));
}

// Numeric addresses only: a name would need a resolver and could refer to other machines.
Descriptor open_listener(const Endpoint& endpoint) {
  const auto address =
      parse_address(endpoint.host == "localhost" ? "127.0.0.1" : endpoint.host, endpoint.port);
  if (!address) cannot_listen(endpoint, "HOST must be an address of this machine, as in 0.0.0.0");
  Descriptor listener(listen_on(*address));
  if (listener.get() < 0) cannot_listen(endpoint, error_text(errno));
  return listener;
}

Descriptor reserve_descriptor() { return Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

// "Host: NAME:PORT" -> the name in lower case; empty: there is no such line.
std::string host_of(const std::string& request) {
  for (const auto line : lines_of(request)) {
    const std::string lower = lowercase(std::string(line));
    if (!lower.starts_with("host:")) continue;
    const std::string host = trimmed(lower.substr(5, lower.find('\r') - 5));
    return host.starts_with('[') ? host.substr(1, host.find(']') - 1)
                                 : host.substr(0, host.find(':'));
  }
  return "";
}

}  // namespace

HttpServer::HttpServer(const Endpoint& endpoint, Responder responder)
    : responder_(std::move(responder)),
      listener_(open_listener(endpoint)),
      reserve_(reserve_descriptor()),
      loopback_only_(is_loopback(endpoint.host) || is_localhost(endpoint.host)) {}

void HttpServer::add_poll_fds(std::vector<pollfd>& fds) const {
  if (!rests_until_) fds.push_back({listener_.get(), POLLIN, 0});
  for (const Connection& connection : connections_) {
    const short wanted = connection.answer.empty() ? POLLIN : POLLOUT;
    fds.push_back({connection.fd.get(), wanted, 0});
  }
}

void HttpServer::handle(const std::vector<pollfd>& fds) {
  connections_.remove_if([&](Connection& connection) {
    return is_ready(fds, connection.fd.get()) && !serve(connection);
  });
  if (rests_until_ && Clock::now() >= *rests_until_) rests_until_.reset();
  if (is_ready(fds, listener_.get())) accept_some();
}

// Answers at once what has been asked already, so that a flood of silent connections drops no
// probe.
void HttpServer::accept_some() {
  for (int i = 0; i < kAcceptedAtOnce; ++i) {
    Connection connection{
        Descriptor(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK))};
    if (connection.fd.get() < 0) {
      if ((errno == EMFILE || errno == ENFILE) && refuse_one()) continue;
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
        rests_until_ = Clock::now() + kRest;
      return;
    }
    if (!serve(connection)) continue;
    if (connections_.size() == kMostConnections) drop_oldest();
    connections_.push_back(std::move(connection));
  }
}

void HttpServer::drop_oldest() {
  serve(connections_.front());  // its request may have come meanwhile
  connections_.pop_front();
}

bool HttpServer::refuse_one() {
  if (reserve_.get() < 0) reserve_ = reserve_descriptor();
  if (reserve_.get() < 0) return false;
  reserve_.reset();
  const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
  const int error = errno;
  if (fd >= 0) ::close(fd);
  reserve_ = reserve_descriptor();
  errno = error;
  return fd >= 0;
}

bool HttpServer::serve(Connection& connection) {
  if (connection.answer.empty()) {
    char buffer[4096];
    const ssize_t got = ::recv(connection.fd.get(), buffer, sizeof buffer, 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (got < 0) return true;
    connection.request.append(buffer, static_cast<std::size_t>(got));
    const bool complete = connection.request.find("\r\n\r\n") != std::string::npos ||
                          connection.request.find("\n\n") != std::string::npos;
    if (!complete && connection.request.size() < kLongestRequest) return true;
    connection.answer = answer_to(complete ? connection.request : "");
  }
  const std::string& answer = connection.answer;
  const ssize_t sent = ::send(connection.fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  connection.answer.erase(0, static_cast<std::size_t>(sent));
  return !connection.answer.empty();
}

bool HttpServer::is_meant(const std::string& request) const {
  const std::string host = host_of(request);
  return !loopback_only_ || host.empty() || parse_address(host, 0) || host == "localhost";
}

std::string HttpServer::answer_to(const std::string& request) const {
  const auto method_end = std::min(request.find(' '), request.size());
  const auto path_end = request.find_first_of(" ?\r\n", method_end + 1);
  const std::string method = request.substr(0, method_end);
  HttpAnswer answer{"400 Bad Request", "text/plain", "not an HTTP request\n"};
  if (!is_meant(request)) {
    answer = {"403 Forbidden", "text/plain", "ask for localhost or a numeric address\n"};
  } else if (path_end != std::string::npos) {
    answer = method == "GET" || method == "HEAD"
                 ? responder_(request.substr(method_end + 1, path_end - method_end - 1))
                 : HttpAnswer{"405 Method Not Allowed", "text/plain",
                              "only GET and HEAD are supported\n"};
  }
  const std::string head = fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
      answer.status, answer.type, answer.body.size());
  return method == "HEAD" ? head : head + answer.body;
}

}  // namespace ddp::launch
