// Where nodes listen for each other: at the endpoint, at --local-addr, or on all addresses.
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>

#include "launcher/base/system/sockets.h"
#include "tests/launcher/nodes.h"
#include "tests/support/catch.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Lines = std::vector<std::string>;

bool answers(const std::string& address, int port) {
  const int fd = launch::begin_connect(*launch::parse_address(address, port));
  pollfd ready{fd, POLLOUT, 0};
  int error = ETIMEDOUT;
  socklen_t size = sizeof error;
  if (::poll(&ready, 1, 10'000) == 1) ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  ::close(fd);
  return error == 0;
}

int number_behind(const std::string& line) { return std::stoi(line.substr(line.find('=') + 1)); }

/// A machine whose own name is of the loopback, as Debian's installer writes it into /etc/hosts.
struct DebianCluster : Cluster {
  DebianCluster() {
    host = "own-name";
    fake_lookup("127.0.1.1");
  }
  void fake_lookup(const std::string& address) const {
    tmp.write("getent", "#!/bin/sh\necho '" + address + " STREAM own-name'\n", true);
  }
  ChildProgram& add(Lines options) {
    ChildOptions child = stub_job(tmp, {}, {"env=MASTER_ADDR", "env=MASTER_PORT", "wait"});
    child.argv.insert(child.argv.begin() + 1, options.begin(), options.end());
    child.set["PATH"] = path;
    return start(child);
  }

  std::string path = tmp.path() + ":/usr/bin:/bin";
};

TEST_CASE("a machine's own name that means its loopback is listened for on all addresses",
          "[nodes]") {
  DebianCluster job;
  ChildProgram& host =
      job.add({"--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=" + job.endpoint()});
  host.wait_for("'own-name' is 127.0.1.1 on this machine (see /etc/hosts)");
  host.wait_for("MASTER_ADDR=own-name");
  CHECK(answers("127.0.0.1", std::stoi(job.port)));
  CHECK(answers("127.0.0.1", number_behind(host.wait_for("MASTER_PORT="))));
  // Another machine knows it by another address.
  job.add({"--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:" + job.port,
           "--rdzv-conf=is_host=0"});
  CHECK_THAT(job.nodes[1]->wait_for("MASTER_ADDR="), Contains("MASTER_ADDR=own-name"));
}

TEST_CASE("the same name with --master-addr", "[nodes]") {
  DebianCluster job;
  ChildProgram& host = job.add(
      {"--nnodes=2", "--node-rank=0", "--master-addr=own-name", "--master-port=" + job.port});
  host.wait_for("'own-name' is 127.0.1.1 on this machine");
  CHECK(answers("127.0.0.1", std::stoi(job.port)));
}

TEST_CASE("an address of the loopback that is given as such is kept", "[nodes]") {
  for (const char* name : {"127.0.1.1", "localhost"}) {
    DebianCluster job;
    job.fake_lookup("127.0.1.1");
    job.host = name;
    ChildProgram& host =
        job.add({"--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=" + job.endpoint()});
    host.wait_for("MASTER_ADDR=127.0.0.1");  // from there it connects to itself
    CHECK_FALSE(answers("127.0.0.1", std::stoi(job.port)));
    CHECK(host.err().find("/etc/hosts") == std::string::npos);
  }
}

TEST_CASE(
    "without getent numeric addresses and localhost are known, and a line says why others are not",
    "[nodes][waits]") {
  for (const char* name : {"127.0.0.1", "localhost", "own-name"}) {
    DebianCluster job;
    std::filesystem::remove(job.tmp / "getent");
    job.path = job.tmp.path();
    job.host = name;
    ChildProgram& host =
        job.add({"--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=" + job.endpoint()});
    if (job.host == "own-name") {
      host.wait_for("the name 'own-name' is not known, as getent is not on PATH here");
    } else {
      host.wait_for("MASTER_ADDR=127.0.0.1");
    }
  }
}

TEST_CASE("a name service that does not answer is the cause in the error", "[nodes]") {
  DebianCluster job;
  job.tmp.write("getent", "#!/bin/sh\nexec sleep 1000\n");
  ChildProgram& node = job.add({"--nnodes=2", "--rdzv-backend=c10d",
                                "--rdzv-endpoint=" + job.endpoint(), "--rdzv-conf=read_timeout=1"});
  CHECK(finish(node) == 1);
  CHECK_THAT(node.err(), Contains("within 1 s: no answer to the name lookup yet; check"));
}

TEST_CASE("a node that waits at the loopback says in its one line that no other machine can come",
          "[nodes]") {
  const std::string why = "; the rendezvous is at 127.0.0.1, where other machines cannot reach it";
  Cluster first, second;
  ChildProgram& host = first.fixed(0, 2, {}, {"wait"});
  ChildProgram& other = second.fixed(1, 2, {}, {"wait"});
  CHECK_THAT(host.wait_for("waiting for nodes: 1 of at least 2"),
             Contains("missing: --node-rank=1" + why));
  CHECK_THAT(other.wait_for("waiting for the rendezvous at 127.0.0.1"), Contains(why));
  CHECK(lines_of(host.err()).size() == 1);
  CHECK(lines_of(other.err()).size() == 1);
}

TEST_CASE("with --local-addr the workers' store listens there", "[nodes]") {
  Cluster job;
  ChildProgram& host = job.elastic("1:2", {"--local-addr=127.0.0.2"},
                                   {"env=MASTER_ADDR", "env=MASTER_PORT", "wait"});
  host.wait_for("MASTER_ADDR=127.0.0.2");
  const int port = number_behind(host.wait_for("MASTER_PORT="));
  CHECK(answers("127.0.0.2", port));
  CHECK_FALSE(answers("127.0.0.1", port));
}

TEST_CASE("the next host listens at its --local-addr", "[nodes]") {
  Cluster job;
  for (const char* own : {"127.0.0.2", "127.0.0.3"}) {
    job.elastic(
        "1:2",
        {"--local-addr=" + std::string(own),
         std::string("--rdzv-conf=last_call_timeout=2,is_host=") + (job.nodes.empty() ? "1" : "0")},
        {"parent", "env=WORLD_SIZE", "wait"});
  }
  for (const auto& node : job.nodes) node->wait_for("WORLD_SIZE=2");
  ::kill(agent_of(*job.nodes[0]), SIGKILL);
  job.nodes[1]->wait_for("this node hosts the rendezvous from now on");
  job.nodes[1]->wait_for("WORLD_SIZE=1");
}

TEST_CASE("a name as --local-addr is no obstacle to the next host", "[nodes]") {
  Cluster job;
  for (int i = 0; i < 3; ++i) {
    job.elastic("1:3",
                {"--local-addr=localhost", std::string("--rdzv-conf=last_call_timeout=2,is_host=") +
                                               (job.nodes.empty() ? "1" : "0")},
                {"parent", "env=WORLD_SIZE", "wait"});
  }
  for (const auto& node : job.nodes) node->wait_for("WORLD_SIZE=3");
  ::kill(agent_of(*job.nodes[0]), SIGKILL);
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}})
    job.nodes[i]->wait_for("WORLD_SIZE=2");
}

}  // namespace
}  // namespace ddp::test
