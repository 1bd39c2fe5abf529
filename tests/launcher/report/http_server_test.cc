// The server of /health and /metrics, in this process: floods of connections, foreign names.
#include "launcher/report/http_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/loopback.h"

namespace ddp::test {
namespace {

using Catch::StartsWith;
using launch::HttpAnswer;
using launch::HttpServer;

HttpAnswer here(const std::string&) { return {"200 OK", "text/plain", "here\n"}; }

void send_text(int fd, const std::string& text) {
  REQUIRE(::send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
}

std::string received(int fd) {
  char buffer[4096];
  const ssize_t got = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
  return {buffer, static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
}

// One turn of the agent's loop; false: the server had nothing to do.
bool turn(HttpServer& server) {
  std::vector<pollfd> fds;
  server.add_poll_fds(fds);
  if (::poll(fds.data(), fds.size(), 0) <= 0) return false;
  server.handle(fds);
  return true;
}

void serve_all(HttpServer& server) {
  while (turn(server)) {
  }
}

struct Silent {
  ~Silent() {
    for (const int fd : fds) ::close(fd);
  }
  void add(int port, int count) {
    for (int i = 0; i < count; ++i) fds.push_back(connected_to(port));
  }
  std::vector<int> fds;
};

const std::string kRequest = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";

TEST_CASE("a flood of silent connections drops no probe") {
  HttpServer server({"127.0.0.1", 0}, here);
  Silent flood;
  flood.add(server.port(), 150);
  const int probe = connected_to(server.port());
  send_text(probe, kRequest);
  flood.add(server.port(), 150);
  serve_all(server);
  CHECK_THAT(received(probe), StartsWith("HTTP/1.1 200 OK"));
  ::close(probe);
}

TEST_CASE("a probe whose request comes after its connection is answered before it is dropped") {
  HttpServer server({"127.0.0.1", 0}, here);
  const int probe = connected_to(server.port());
  serve_all(server);
  Silent flood;
  flood.add(server.port(), 150);
  std::vector<pollfd> fds;
  server.add_poll_fds(fds);
  REQUIRE(::poll(fds.data(), fds.size(), 0) == 1);  // the listener, and not yet the probe
  send_text(probe, kRequest);
  server.handle(fds);
  serve_all(server);
  CHECK_THAT(received(probe), StartsWith("HTTP/1.1 200 OK"));
  ::close(probe);
}

TEST_CASE("one turn of the agent's loop accepts a bounded number of connections") {
  HttpServer server({"127.0.0.1", 0}, here);
  Silent flood;
  flood.add(server.port(), 300);
  int turns = 0;
  while (turn(server)) ++turns;
  CHECK(turns >= 4);
}

std::string asked(const std::string& bound_to, const std::string& headers) {
  HttpServer server({bound_to, 0}, here);
  const int fd = connected_to(server.port());
  send_text(fd, "GET /health HTTP/1.1\r\n" + headers + "\r\n");
  serve_all(server);
  const std::string answer = received(fd);
  ::close(fd);
  return answer.substr(0, answer.find("\r\n"));
}

TEST_CASE("on a loopback address, requests to another machine's name are refused") {
  const std::string ok = "HTTP/1.1 200 OK", refused = "HTTP/1.1 403 Forbidden";
  for (const std::string own :
       {"localhost", "LocalHost:80", "127.0.0.1:9000", "[::1]:80", "[::1]", "10.0.0.7", ""}) {
    INFO(own);
    CHECK(asked("127.0.0.1", "Host: " + own + "\r\n") == ok);
    CHECK(asked("localhost", "Accept: */*\r\nhost:" + own + "\r\n") == ok);
  }
  CHECK(asked("127.0.0.1", "") == ok);  // HTTP/1.0
  for (const std::string foreign :
       {"attacker.example", "attacker.example:80", "127.0.0.1.evil.net", "localhost.evil.net"}) {
    INFO(foreign);
    CHECK(asked("127.0.0.1", "Host: " + foreign + "\r\n") == refused);
    CHECK(asked("127.0.0.1", "Accept: */*\r\nHOST:\t" + foreign + "\r\n\r\n") == refused);
  }
  CHECK(asked("0.0.0.0", "Host: node7.cluster:9090\r\n") == ok);  // a scraper's name for it
}

}  // namespace
}  // namespace ddp::test
