// Several nodes, each with its own ddp-run, on one machine: the training is that of one node.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"
#include "tests/e2e/unbroken.h"
#include "tests/e2e/workers.h"
#include "tests/support/loopback.h"

namespace ddp::test {
namespace {

using Catch::Contains;

// Ends when a program accepts connections there.
void wait_until_open(int port) {
  const auto is_open = [port] {
    const int fd = connected_to(port);
    ::close(fd);
    return fd >= 0;
  };
  wait_until(is_open, kPatience);
}

// One rank per node.
ChildOptions fixed_node(const Workspace& place, int rank, int port, const Words& overrides = {}) {
  return launched(place, 1, overrides,
                  {"--nnodes=2", "--node_rank=" + std::to_string(rank), "--master_addr=127.0.0.1",
                   "--master_port=" + std::to_string(port)});
}

ChildOptions elastic_node(const Workspace& place, int port, const Words& overrides = {},
                          const Words& more = {}) {
  Words options = {"--nnodes=2:2", "--rdzv-backend=c10d",
                   "--rdzv-endpoint=127.0.0.1:" + std::to_string(port)};
  options.insert(options.end(), more.begin(), more.end());
  return launched(place, 1, overrides, options);
}

// Once both of these processes, which were there before, are the workers.
void wait_until_alone(const Workspace& place, const std::vector<pid_t>& early) {
  wait_until([&] { return worker_pid(place, 0) == 0 && worker_pid(place, 1) == 0; }, kPatience);
  for (const pid_t pid : early) CHECK(::kill(pid, 0) == 0);
}

TEST_CASE("two nodes of one rank end as one node of two ranks") {
  const Workspace two;
  const Unbroken one(2);
  const int port = unused_port();
  ChildProgram second(fixed_node(two, 1, port));
  ChildProgram first(fixed_node(two, 0, port));
  CHECK(first.wait_exit(kPatience) == 0);
  CHECK(second.wait_exit(kPatience) == 0);
  CHECK(differences(one.snapshot(), two.snapshot()) == Words{});
}

// Rank 0 is slow at step 13, and meanwhile the other node is killed.
TEST_CASE("a node that is killed and replaced costs nothing but time") {
  const Workspace place;
  const Unbroken unbroken(2);
  const int port = unused_port();
  const Words options = {
      "trainer_config.save_every_steps=5",
      "trainer_config.fault_plan=['rank=0 step=13 phase=data kind=slow value=3000']"};
  ChildProgram first(elastic_node(place, port, options));
  wait_until_open(port);  // so the first one is the host, and its worker rank 0
  ChildProgram second(elastic_node(place, port, options));
  first.wait_for("Step 12 ", 1, kPatience);
  const pid_t victim = second.pid();
  ::kill(victim, SIGKILL);
  ChildProgram replacement(elastic_node(place, port, options));
  CHECK(first.wait_exit(kPatience) == 0);
  CHECK(replacement.wait_exit(kPatience) == 0);
  INFO(first.err());
  CHECK_THAT(first.err(), Contains("ddp-run: node 1, "));
  CHECK(differences(unbroken.snapshot(), place.snapshot()) == Words{});
}

// The first attempt hangs until a rank is killed, and so does the second.
TEST_CASE("warm spares of two nodes take over together") {
  const Workspace place;
  const Unbroken unbroken(2);
  const int port = unused_port();
  const Words overrides = {
      "trainer_config.save_every_steps=5", "distributed_config.hang_timeout_s=0",
      R"(trainer_config.fault_plan=["rank=1 step=12 kind=hang","rank=1 step=24 kind=hang attempt=1"])"};
  const Words options = {"--warm-spares", "--max_restarts=3"};
  ChildProgram first(elastic_node(place, port, overrides, options));
  wait_until_open(port);  // so the first one is the host, and its worker rank 0
  ChildProgram second(elastic_node(place, port, overrides, options));
  first.wait_for("standby workers: 1 process, ", 1, kPatience);
  second.wait_for("standby workers: 1 process, ", 1, kPatience);
  const auto early = spare_pids(place);
  REQUIRE(early.size() == 2);
  ::kill(worker_pid(place, 1), SIGKILL);
  wait_until_alone(place, early);
  for (const pid_t pid : early) ::kill(pid, SIGKILL);
  CHECK(first.wait_exit(kPatience) == 0);
  CHECK(second.wait_exit(kPatience) == 0);
  INFO(first.err() << second.err());
  CHECK(differences(unbroken.snapshot(), place.snapshot()) == Words{});
}

// Features of one machine alone must not log a line per rank.
TEST_CASE("what needs one machine is a warning of rank 0's on two, and the run is the same") {
  const auto run_on_two = [](const Workspace& place, const Words& options) {
    const int port = unused_port();
    ChildProgram second(fixed_node(place, 1, port, options));
    auto first = finish(fixed_node(place, 0, port, options));
    CHECK(first.exit == 0);
    CHECK(second.wait_exit(kPatience) == 0);
    return first.err + second.err();
  };
  const auto times = [](const std::string& text, const std::string& part) {
    int count = 0;
    for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
    return count;
  };
  const Unbroken one(2);
  const Workspace divided, shared;
  const std::string by_state = run_on_two(
      divided, {"distributed_config.strategy=zero1", "trainer_config.ram_snapshots=true"});
  CHECK(times(by_state, "trainer_config.ram_snapshots is off: each rank would copy its part") == 1);
  CHECK(differences(one.snapshot(), divided.snapshot()) == Words{});
  const std::string by_layers = run_on_two(shared, {"distributed_config.tensor=2"});
  CHECK(times(by_layers, "ranks that share layers are on different machines") == 1);
}

TEST_CASE("a snapshot that only another node has stops the run instead of starting anew") {
  const Workspace first_place, second_place;
  succeed(launched(second_place, 2));
  const int port = unused_port();
  ChildProgram second(fixed_node(second_place, 1, port));
  const auto first = finish(fixed_node(first_place, 0, port));
  CHECK(first.exit == 2);
  CHECK_THAT(first.err, Contains("rank 0's node has no snapshot there, but rank 1's has one"));
  CHECK(second.wait_exit(kPatience) == 2);
  CHECK_FALSE(std::filesystem::exists(first_place.snapshot()));
}

}  // namespace
}  // namespace ddp::test
