// Several ddp-run as the nodes of one elastic job: nodes that come, leave, die and stall, and a
// rendezvous that moves. Strangers at its port: tests/clusters/test_strangers.py.
#include <signal.h>

#include "tests/launcher/nodes.h"
#include "tests/support/catch.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Lines = std::vector<std::string>;
using Codes = std::vector<int>;

// The first round has all nodes, however late they are.
constexpr int kLate = 60;

// The first node hosts the rendezvous. A silent node is lost after two heartbeats of a second each.
struct Elastic : Cluster {
  explicit Elastic(std::string its_range, int max_restarts = 0)
      : range(std::move(its_range)), restarts(max_restarts) {}
  std::string range;
  int restarts;
  int last_call = 2;  // s, also between a change and the admission of a new node

  ChildProgram& add(const Lines& actions = kStay, const Lines& more = {}) {
    Lines options{"--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=2,last_call_timeout=" +
                      std::to_string(last_call) + ",is_host=" + (nodes.empty() ? "1" : "0"),
                  "--max-restarts=" + std::to_string(restarts)};
    options.insert(options.end(), more.begin(), more.end());
    return elastic(range, options, actions);
  }
  void begin(int count, const Lines& actions = kStay) {
    for (int i = 0; i < count; ++i) add(actions);
    for (const auto& node : nodes) {
      node->wait_for("WORLD_SIZE=" + std::to_string(count));
      node->wait_for("waiting");
    }
  }
  ChildProgram& operator[](std::size_t i) const { return *nodes.at(i); }
};

// ---- nodes come and go ------------------------------------------------------------------------

TEST_CASE("a node joins in mid-run, and all count the same restart", "[nodes]") {
  Elastic job("1:2");
  Lines actions = kStay;
  actions.insert(actions.end() - 1, "#1exit=0");
  job.add(actions).wait_for("WORLD_SIZE=1");
  job.add(actions);
  CHECK(job.exit_codes() == Codes{0, 0});
  CHECK_THAT(job[0].out(), Contains("COUNT=0\nRANK=0\nWORLD_SIZE=1\n") &&
                               Contains("COUNT=1\nRANK=0\nWORLD_SIZE=2\n"));
  CHECK_THAT(job[1].out(), Contains("COUNT=1\nRANK=1\nWORLD_SIZE=2\n"));
  CHECK_THAT(job[0].err(), Contains(" joins; restarting the workers with it"));
  CHECK(nothing_left(job.tmp));
}

TEST_CASE("a worker that exits with 0 because a node joins has not finished", "[nodes]") {
  Elastic job("1:2");
  const Lines actions{"env=WORLD_SIZE", "#0trap-exit=0", "#0wait", "exit=0"};
  job.add(actions).wait_for("waiting");
  job.add(actions);
  CHECK(job.exit_codes() == Codes{0, 0});
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}})
    CHECK_THAT(job[i].out(), Contains("WORLD_SIZE=2"));
}

TEST_CASE("a node leaves with SIGTERM, the others go on without it", "[nodes]") {
  Elastic job("1:3");
  job.last_call = kLate;
  Lines actions = kStay;
  actions.insert(actions.end() - 1, "#1exit=0");
  job.begin(3, actions);
  job[1].signal(SIGTERM);
  CHECK(job.exit_codes() == Codes{0, 128 + SIGTERM, 0});
  for (const int i : {0, 2}) {
    CHECK_THAT(job[static_cast<std::size_t>(i)].out(),
               Contains("COUNT=1") && Contains("WORLD_SIZE=2"));
    CHECK_THAT(job[static_cast<std::size_t>(i)].err(), Contains("leaves the job (SIGTERM)"));
  }
  CHECK(nothing_left(job.tmp));
}

TEST_CASE("a node whose agent or ddp-run is killed is noticed at once", "[nodes]") {
  for (const bool agent : {true, false}) {
    Elastic job("1:2");
    job.last_call = kLate;
    Lines actions = kStay;
    actions.insert(actions.end() - 1, "#1exit=0");
    job.begin(2, actions);
    if (agent) ::kill(agent_of(job[1]), SIGKILL);
    if (!agent) job[1].signal(SIGKILL);
    CHECK(finish(job[0]) == 0);
    CHECK_THAT(job[0].out(), Contains("COUNT=1\nRANK=0\nWORLD_SIZE=1\n"));
    CHECK_THAT(job[0].err(), Contains("was lost") || Contains("its ddp-run was killed"));
    CHECK(finish(job[1]) == (agent ? 128 + SIGKILL : -SIGKILL));
    job[1].wait_all_gone(kSoon);
  }
}

TEST_CASE("with --node-rank a killed node ends the job on all, and is named", "[nodes]") {
  for (const std::size_t victim : {std::size_t{0}, std::size_t{1}}) {
    for (const bool agent : {true, false}) {
      Cluster job;
      for (int i = 0; i < 2; ++i) job.fixed(i, 2, {"--max-restarts=3"}, kStay);
      for (const auto& node : job.nodes) node->wait_for("waiting");
      if (agent) ::kill(agent_of(*job.nodes[victim]), SIGKILL);
      if (!agent) job.nodes[victim]->signal(SIGKILL);
      ChildProgram& other = *job.nodes[1 - victim];
      CHECK(finish(other) == 1);
      CHECK_THAT(other.err(),
                 Contains("its ddp-run is gone") || Contains("its ddp-run was killed"));
    }
  }
}

TEST_CASE("SIGTERM at one node with --node-rank ends the job on all", "[nodes]") {
  for (const std::size_t victim : {std::size_t{0}, std::size_t{1}}) {
    Cluster job;
    for (int i = 0; i < 2; ++i) job.fixed(i, 2, {}, kStay);
    for (const auto& node : job.nodes) node->wait_for("waiting");
    job.nodes[victim]->signal(SIGTERM);
    CHECK(finish(*job.nodes[victim]) == 128 + SIGTERM);
    CHECK(finish(*job.nodes[1 - victim]) == 1);
    CHECK_THAT(job.nodes[1 - victim]->err(), Contains("leaves the job (SIGTERM)"));
  }
}

TEST_CASE("a stopped agent is lost after its heartbeats, and joins again when it goes on",
          "[nodes]") {
  Elastic job("1:2");
  job.begin(2);
  Paused agent(agent_of(job[1]));
  job[0].wait_for("it has been silent for 2 s (--rdzv-conf=keep_alive_interval, ");
  job[0].wait_for("WORLD_SIZE=1");
  agent.resume();
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) job[i].wait_for("WORLD_SIZE=2", 2);
  CHECK(ever(job[1], "the other nodes gave up on this one: it has been silent for 2 s"));
  CHECK_FALSE(ever(job[1], "the host of the rendezvous"));
  for (const auto& node : job.nodes) node->signal(SIGTERM);
  CHECK(job.exit_codes() == Codes{128 + SIGTERM, 128 + SIGTERM});
}

TEST_CASE("a lost node that is needed is waited for, and replaced", "[nodes]") {
  Elastic job("2", 1);
  job.begin(2);
  ::kill(agent_of(job[1]), SIGKILL);
  job[0].wait_for("for another in its place, as --nnodes needs 2: node 1");
  job.add();
  job[2].wait_for("WORLD_SIZE=2");
  CHECK_THAT(job[2].out(), Contains("COUNT=1\nRANK=1\n"));
  job[0].wait_for("COUNT=1");
}

TEST_CASE("without restarts a lost node ends a job of a fixed number of nodes", "[nodes]") {
  for (const std::size_t lost : {std::size_t{0}, std::size_t{1}}) {
    Elastic job("2");
    job.begin(2);
    ::kill(agent_of(job[lost]), SIGKILL);
    CHECK(finish(job[1 - lost]) == 1);
    CHECK_THAT(job[1 - lost].err(),
               Contains("--nnodes=2 needs every node, and --max-restarts=0 allows no restart"));
    CHECK_FALSE(ever(job[1 - lost], "WORLD_SIZE=1"));
  }
}

TEST_CASE("a spare steps in for a lost node", "[nodes]") {
  Elastic job("2");
  Lines actions = kStay;
  actions.insert(actions.end() - 1, "#1exit=0");
  job.begin(2, actions);
  job.add(actions).wait_for("this one waits as a spare");
  ::kill(agent_of(job[1]), SIGKILL);
  CHECK(finish(job[2]) == 0);
  CHECK(finish(job[0]) == 0);
  CHECK_THAT(job[2].out(), Contains("COUNT=1\nRANK=1\nWORLD_SIZE=2\n"));
}

TEST_CASE("a spare ends with the job, and as the job did", "[nodes]") {
  for (const int code : {0, 9}) {
    Elastic job("1:2");
    job.last_call = kLate;
    const Lines actions{"hold=USR1", "exit=" + std::to_string(code)}, id{"--rdzv-id=mine"};
    job.add(actions, id);
    job.add(actions, id);
    const std::string a = job[0].wait_for("holding "), b = job[1].wait_for("holding ");
    job.add(actions, id).wait_for("this one waits as a spare");
    for (const auto& line : {a, b}) ::kill(std::stoi(line.substr(8)), SIGUSR1);
    CHECK(job.exit_codes() == Codes{code, code, code});
    CHECK(nothing_left(job.tmp));
  }
}

TEST_CASE("a second job of the same name at the endpoint does not end as if it had run",
          "[nodes]") {
  Elastic job("1:2");
  job.last_call = kLate;
  const Lines actions{"hold=USR1", "exit=0"};
  job.add(actions);
  job.add(actions);
  const std::string a = job[0].wait_for("holding "), b = job[1].wait_for("holding ");
  CHECK_THAT(job.add(actions).wait_for("this one waits as a spare"),
             Contains("if this is another job, give each job its own --rdzv-id"));
  for (const auto& line : {a, b}) ::kill(std::stoi(line.substr(8)), SIGUSR1);
  CHECK(job.exit_codes() == Codes{0, 0, 1});
  CHECK(ever(job[2], "this node never ran"));
}

TEST_CASE("a spare can be stopped", "[nodes]") {
  Elastic job("1:2");
  job.last_call = kLate;
  job.begin(2);
  job.add().wait_for("this one waits as a spare");
  job[2].signal(SIGTERM);
  CHECK(finish(job[2]) == 128 + SIGTERM);
  CHECK_FALSE(ever(job[0], "leaves"));
}

// ---- the host of the rendezvous ---------------------------------------------------------------

TEST_CASE("the host is killed: the other node of two goes on", "[nodes]") {
  for (const bool agent : {true, false}) {
    Elastic job("1:2");
    job.last_call = kLate;
    job.begin(2);
    if (agent) ::kill(agent_of(job[0]), SIGKILL);
    if (!agent) job[0].signal(SIGKILL);
    job[1].wait_for("this node hosts the rendezvous from now on");
    job[1].wait_for("WORLD_SIZE=1");
    CHECK_THAT(job[1].out(), Contains("COUNT=1\nRANK=0\n"));
  }
}

TEST_CASE("the host is killed: the others of three go on, and a new node finds them", "[nodes]") {
  Elastic job("2:3");
  job.last_call = 5;
  job.begin(3);
  ::kill(agent_of(job[0]), SIGKILL);
  job[1].wait_for("WORLD_SIZE=2");
  job[2].wait_for("WORLD_SIZE=2");
  job.add();
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}}) job[i].wait_for("WORLD_SIZE=3", 2);
  job[3].wait_for("WORLD_SIZE=3");
  CHECK_THAT(job[3].out(), Contains("COUNT=2\nRANK=2\n"));
  // Then the next host is killed.
  const std::size_t host = ever(job[1], "this node hosts") ? 1 : 2;
  ::kill(agent_of(job[host]), SIGKILL);
  job[3 - host].wait_for("COUNT=3");
  job[3].wait_for("COUNT=3");
}

TEST_CASE("the host leaves with SIGTERM: the others do not wait for its workers", "[nodes]") {
  Elastic job("1:3");
  job.last_call = kLate;
  Lines stubborn = kStay;
  stubborn.insert(stubborn.begin(), "ignore=TERM");
  for (std::size_t i = 0; i < 3; ++i)
    job.add(i == 0 ? stubborn : kStay, {"--shutdown-timeout=600"});
  for (const auto& node : job.nodes) node->wait_for("waiting");
  job[0].signal(SIGTERM);
  job[0].wait_for("grace period 600 s");
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}}) {
    job[i].wait_for("WORLD_SIZE=2");
    CHECK_THAT(job[i].err(), Contains("leaves the job (SIGTERM)"));
  }
}

TEST_CASE("a host that stalls is left behind, and joins again when it goes on", "[nodes]") {
  Elastic job("1:3");
  job.last_call = 5;
  job.begin(3);
  Paused agent(agent_of(job[0]));
  job[1].wait_for("WORLD_SIZE=2");
  job[2].wait_for("WORLD_SIZE=2");
  agent.resume();
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}, std::size_t{2}})
    job[i].wait_for("WORLD_SIZE=3", 2);
  CHECK_FALSE(ever(job[0], "WORLD_SIZE=1"));  // two halves of a job must not both continue
}

TEST_CASE("half of a job of two waits for its silent host, and says why", "[nodes]") {
  Elastic job("1:2");
  job.begin(2);
  Paused agent(agent_of(job[0]));
  CHECK_THAT(job[1].wait_for("waiting for 600 s at most"),
             Contains("1 of the last round's 2 nodes are here, which is no majority") &&
                 Contains("is silent") && Contains("allow_minority=1"));
  agent.resume();
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) job[i].wait_for("WORLD_SIZE=2", 2);
  CHECK_FALSE(ever(job[1], "WORLD_SIZE=1"));
}

TEST_CASE("with allow_minority half of a job of two goes on without its silent host",
          "[nodes][waits]") {
  Elastic job("1:2");
  for (int i = 0; i < 2; ++i) {
    job.add(kStay, {"--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=2,allow_minority=1,"
                    "last_call_timeout=2,is_host=" +
                    std::string(i == 0 ? "1" : "0")});
  }
  for (const auto& node : job.nodes) node->wait_for("WORLD_SIZE=2");
  const Paused agent(agent_of(job[0]));
  job[1].wait_for("WORLD_SIZE=1");
}

}  // namespace
}  // namespace ddp::test
