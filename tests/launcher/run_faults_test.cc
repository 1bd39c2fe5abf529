// Several ddp-run as the nodes of one job, whose network fails: connections that are reset, a
// successor that sleeps, a node that returns.
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/base/system/sockets.h"
#include "launcher/rendezvous/wire/round_port.h"
#include "tests/launcher/nodes.h"
#include "tests/support/catch.h"

namespace ddp::test {
namespace {

using Lines = std::vector<std::string>;
using Codes = std::vector<int>;

const std::string kConf =
    "--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=2,last_call_timeout=60,is_host=";

// The network between a node and its host, in a process of its own: SIGUSR1 resets what goes
// through it, and a byte comes when that is done.
class Relay {
 public:
  explicit Relay(int to)
      : listener_(launch::listen_for_workers("127.0.0.1", 0)),
        port_(launch::port_of(listener_.get())) {
    REQUIRE(::pipe(done_) == 0);
    pid_ = ::fork();
    if (pid_ == 0) run(to);
  }
  ~Relay() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    for (const int fd : done_) ::close(fd);
  }
  Relay(const Relay&) = delete;
  int port() const { return port_; }
  void reset() const {
    ::kill(pid_, SIGUSR1);
    char byte = 0;
    REQUIRE(::read(done_[0], &byte, 1) == 1);
  }

 private:
  [[noreturn]] void run(int to) {
    static volatile sig_atomic_t asked = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { asked = 1; };
    ::sigaction(SIGUSR1, &action, nullptr);
    std::vector<pollfd> fds{{listener_.get(), POLLIN, 0}};  // then pairs of connections
    for (;;) {
      if (asked == 1) {
        const linger at_once{1, 0};
        for (std::size_t i = 1; i < fds.size(); ++i) {
          ::setsockopt(fds[i].fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
          ::close(fds[i].fd);
        }
        fds.resize(1);
        asked = 0;
        if (::write(done_[1], "x", 1) != 1) ::_exit(1);
      }
      if (::poll(fds.data(), fds.size(), 100) <= 0) continue;
      const std::size_t known = fds.size();
      if ((fds[0].revents & POLLIN) != 0) {
        fds.push_back({::accept(listener_.get(), nullptr, nullptr), POLLIN, 0});
        fds.push_back({connected(to), POLLIN, 0});
      }
      for (std::size_t i = 1; i < known; ++i) pass_on(fds, i);
    }
  }
  static int connected(int port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = loopback_address(port);
    ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    return fd;
  }
  static void pass_on(std::vector<pollfd>& fds, std::size_t i) {
    if (fds[i].fd < 0 || fds[i].revents == 0) return;
    const int other = fds[i % 2 == 1 ? i + 1 : i - 1].fd;
    char bytes[4096];
    const ssize_t got = ::recv(fds[i].fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got > 0 && ::send(other, bytes, static_cast<std::size_t>(got), MSG_NOSIGNAL) == got) return;
    ::shutdown(other, SHUT_RDWR);
    fds[i].fd = -1;
  }

  launch::Descriptor listener_;
  int port_;
  int done_[2] = {-1, -1};
  pid_t pid_ = -1;
};

TEST_CASE("a connection that is reset is no death: the workers of all nodes go on", "[nodes]") {
  Cluster job;
  const Relay relay(std::stoi(job.port));
  const Lines actions{"env=TORCHELASTIC_RESTART_COUNT", "env=WORLD_SIZE", "hold=USR1", "exit=0"};
  // Nobody begins alone, however late the second node is.
  const std::string conf = "--rdzv-conf=last_call_timeout=60,is_host=";
  job.elastic("1:2", {conf + "1"}, actions);
  job.port = std::to_string(relay.port());
  job.elastic("1:2", {conf + "0"}, actions);
  std::vector<pid_t> workers;
  for (const auto& node : job.nodes) {
    node->wait_for("WORLD_SIZE=2");
    workers.push_back(pid_after(*node, "holding"));
  }
  for (int i = 0; i < 3; ++i) relay.reset();
  for (const pid_t worker : workers) ::kill(worker, SIGUSR1);
  CHECK(job.exit_codes() == Codes{0, 0});
  for (const auto& node : job.nodes) {
    // A note that a slow node is waited for may be there, but no node is given up.
    CHECK(node->err().find("restarting without it") == std::string::npos);
    CHECK(node->err().find("in its place") == std::string::npos);
    CHECK_FALSE(ever(*node, "COUNT=1"));
  }
}

TEST_CASE("the host is killed while its successor sleeps: there is one job, with the successor",
          "[nodes]") {
  Cluster job;
  for (int i = 0; i < 3; ++i) job.elastic("1:3", {kConf + (i == 0 ? "1" : "0")}, kStay);
  for (const auto& node : job.nodes) node->wait_for("waiting");
  const auto comes_first = [&](std::size_t i) {
    return ever(*job.nodes[i], "\nRANK=0\n") ||
           (ever(*job.nodes[i], "\nRANK=1\n") && !ever(*job.nodes[3 - i], "\nRANK=0\n"));
  };
  const std::size_t successor = comes_first(1) ? 1 : 2;
  const std::size_t last = 3 - successor;
  Paused sleeper(agent_of(*job.nodes[successor]));
  ::kill(agent_of(*job.nodes[0]), SIGKILL);
  job.nodes[last]->wait_for("1 of the last round's 3 nodes are here, which is no majority");
  sleeper.resume();
  for (const std::size_t i : {successor, last}) job.nodes[i]->wait_for("WORLD_SIZE=2");
  for (const std::size_t i : {successor, last}) CHECK_FALSE(ever(*job.nodes[i], "WORLD_SIZE=1"));
}

}  // namespace
}  // namespace ddp::test
