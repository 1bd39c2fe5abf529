// Several ddp-run as the nodes of one job: how it begins, fails, starts again and ends.
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "launcher/base/system/sockets.h"
#include "launcher/rendezvous/wire/round_port.h"
#include "tests/launcher/nodes.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Lines = std::vector<std::string>;
using Codes = std::vector<int>;

const Lines kPlace{"env=GROUP_RANK", "env=GROUP_WORLD_SIZE", "env=WORLD_SIZE", "env=MASTER_ADDR"};

// ---- the beginning ----------------------------------------------------------------------------

TEST_CASE("nodes with --node-rank start in any order", "[nodes]") {
  for (const bool master_first : {true, false}) {
    Cluster job;
    ChildProgram& a = job.fixed(master_first ? 0 : 1, 2, {"--nproc-per-node=2"}, {"env=RANK"});
    ChildProgram& b = job.fixed(master_first ? 1 : 0, 2, {"--nproc-per-node=2"}, {"env=RANK"});
    CHECK(job.exit_codes() == Codes{0, 0});
    CHECK_THAT((master_first ? a : b).out(), Contains("RANK=0\n") && Contains("RANK=1\n"));
    CHECK_THAT((master_first ? b : a).out(), Contains("RANK=2\n") && Contains("RANK=3\n"));
    CHECK((a.err() + b.err()).empty());
    CHECK(nothing_left(job.tmp));
  }
}

TEST_CASE("nodes wait for a late master and say for what", "[nodes]") {
  Cluster job;
  ChildProgram& late = job.fixed(1, 2, {}, kPlace);
  late.wait_for("waiting for the rendezvous at " + job.endpoint() + " (");
  CHECK_THAT(late.err(), Contains("Connection refused"));
  job.fixed(0, 2, {}, kPlace);
  CHECK(job.exit_codes() == Codes{0, 0});
  CHECK_THAT(late.out(), Contains("GROUP_RANK=1\nGROUP_WORLD_SIZE=2\nWORLD_SIZE=2\n"));
}

TEST_CASE("a node that outlives all workers of another by --exit-grace is hung", "[nodes][waits]") {
  Cluster job;
  ChildProgram& done = job.fixed(0, 2, {"--exit-grace=0.1"}, {"@1wait", "env=RANK"});
  ChildProgram& runs = job.fixed(1, 2, {"--exit-grace=0.1"}, {"@1wait", "env=RANK"});
  CHECK(job.exit_codes() == Codes{124, 124});
  CHECK(done.out() == "RANK=0\n");
  CHECK_THAT(runs.err(), Contains("still running 0.1 s after all of node 0 exited (--exit-grace)"));
}

TEST_CASE("nodes meet at an IPv6 address", "[nodes]") {
  Cluster job;
  job.host = "[::1]";
  for (int i = 0; i < 2; ++i) job.elastic("2", {}, kPlace);
  CHECK(job.exit_codes() == Codes{0, 0});
  CHECK_THAT(job.nodes[0]->out(), Contains("MASTER_ADDR=::1\n"));
  Cluster fixed;
  fixed.host = "::1";
  for (int i = 0; i < 2; ++i) fixed.fixed(i, 2, {}, kPlace);
  CHECK(fixed.exit_codes() == Codes{0, 0});
  CHECK_THAT(fixed.nodes[1]->out(), Contains("MASTER_ADDR=::1\n"));
}

TEST_CASE("nodes that meet at a name give it to their workers", "[nodes]") {
  Cluster job;
  job.host = "localhost";
  for (int i = 0; i < 2; ++i) job.fixed(i, 2, {}, {"env=MASTER_ADDR"});
  CHECK(job.exit_codes() == Codes{0, 0});
  for (const auto& node : job.nodes) CHECK(node->out() == "MASTER_ADDR=localhost\n");
}

TEST_CASE("nodes of different sizes and roles", "[nodes]") {
  Cluster job;
  const Lines seen{"@2env=ROLE_RANK", "@2env=ROLE_WORLD_SIZE", "@2env=LOCAL_RANK",
                   "@2env=WORLD_SIZE"};
  job.fixed(0, 3, {"--nproc-per-node=2", "--role=a"}, seen);
  ChildProgram& b = job.fixed(1, 3, {"--nproc-per-node=1", "--role=b"}, seen);
  ChildProgram& c =
      job.fixed(2, 3, {"--nproc-per-node=3", "--role=a"}, {"@4env=ROLE_RANK", "env=RANK"});
  CHECK(job.exit_codes() == Codes{0, 0, 0});
  CHECK(b.out() == "ROLE_RANK=0\nROLE_WORLD_SIZE=1\nLOCAL_RANK=0\nWORLD_SIZE=6\n");
  CHECK_THAT(c.out(), Contains("ROLE_RANK=3\n") && Contains("RANK=5\n"));
}

TEST_CASE("a rendezvous in which --local-addr names the address of the first node", "[nodes]") {
  Cluster job;
  job.elastic("2", {"--local-addr=127.0.0.3"}, {"env=MASTER_ADDR"});
  job.elastic("2", {"--local-addr=127.0.0.3"}, {"env=MASTER_ADDR"});
  CHECK(job.exit_codes() == Codes{0, 0});
  CHECK(job.nodes[0]->out() == "MASTER_ADDR=127.0.0.3\n");
  CHECK(job.nodes[1]->out() == "MASTER_ADDR=127.0.0.3\n");
}

TEST_CASE("elastic nodes find the agents' store where the first of them says", "[nodes]") {
  Cluster job;
  const Lines seen{"env=MASTER_PORT", "env=TORCHELASTIC_USE_AGENT_STORE"};
  for (int i = 0; i < 2; ++i) job.elastic("2", {}, seen);
  CHECK(job.exit_codes() == Codes{0, 0});
  CHECK(job.nodes[0]->out() == job.nodes[1]->out());
  CHECK_THAT(job.nodes[0]->out(), Contains("TORCHELASTIC_USE_AGENT_STORE=True"));
}

// Each round's clients are counted from one.
TEST_CASE("workers of all nodes meet at a store that is new in each round", "[nodes]") {
  for (const bool elastic : {false, true}) {
    Cluster job;
    const Lines deeds{"ask-store", "#0@1exit=1", "#0wait"};
    for (int i = 0; i < 2; ++i) {
      if (elastic) {
        job.elastic("2", {"--max-restarts=1"}, deeds);
      } else {
        job.fixed(i, 2, {"--max-restarts=1"}, deeds);
      }
    }
    CHECK(job.exit_codes() == Codes{0, 0});
    Lines answers;
    for (const auto& node : job.nodes) {
      for (const auto& line : node->out_lines())
        if (line.rfind("store: ", 0) == 0) answers.push_back(line);
    }
    std::sort(answers.begin(), answers.end());
    // In the first round one may have been stopped before it asked, or before it had an answer.
    CHECK((answers == Lines{"store: 1", "store: 1", "store: 2"} ||
           answers == Lines{"store: 1", "store: 2", "store: 2"} ||
           answers == Lines{"store: 1", "store: 1", "store: 2", "store: 2"}));
    CHECK(nothing_left(job.tmp));
  }
}

TEST_CASE("a store that is killed fails the round on all nodes", "[nodes]") {
  Cluster job;
  for (int i = 0; i < 2; ++i)
    job.fixed(i, 2, {"--max-restarts=1"}, {"parent", "ask-store", "#0wait"});
  for (auto& node : job.nodes) node->wait_for("waiting ");
  const pid_t store = store_of(agent_of(*job.nodes[0]));
  REQUIRE(store > 0);
  CHECK(store_of(agent_of(*job.nodes[1])) == 0);
  ::kill(store, SIGKILL);
  CHECK(job.exit_codes() == Codes{0, 0});
  CHECK_THAT(job.nodes[0]->err(), Contains("the workers' store (pid " + std::to_string(store) +
                                           ") ended: killed by SIGKILL"));
}

// ---- failures ---------------------------------------------------------------------------------

TEST_CASE("a worker that fails on any node ends the job on all with one report", "[nodes]") {
  for (const char* failing : {"@0", "@1", "@2"}) {
    Cluster job;
    const std::string at = failing;
    for (int i = 0; i < 3; ++i) {
      job.fixed(
          i, 3, {"--result-json=" + job.tmp / std::to_string(i)},
          {"print=up", at + "hold=USR1", at + "err=the last words\\n", at + "exit=7", "wait"});
    }
    for (const auto& node : job.nodes) node->wait_for("up");
    ChildProgram& cause = *job.nodes[static_cast<std::size_t>(at[1] - '0')];
    ::kill(pid_after(cause, "holding"), SIGUSR1);
    CHECK(job.exit_codes() == Codes{7, 7, 7});
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK_THAT(job.nodes[i]->err(),
                 Contains("rank      : " + at.substr(1) + " (local_rank: 0)") &&
                     Contains("exitcode  : 7") && Contains("the last words"));
      const auto result = nlohmann::json::parse(text_of(job.tmp / std::to_string(i)));
      CHECK(result["exit_code"] == 7);
      CHECK(result["failures"][0]["rank"] == at[1] - '0');
    }
  }
}

TEST_CASE("a job of several nodes starts again with one count and one budget", "[nodes]") {
  for (const bool elastic : {true, false}) {
    Cluster job;
    const Lines actions{"env=TORCHELASTIC_RESTART_COUNT", "@0#0exit=3", "@1#1exit=4", "#2exit=0",
                        "wait"};
    for (int i = 0; i < 2; ++i) {
      if (elastic) job.elastic("2", {"--max-restarts=2"}, actions);
      if (!elastic) job.fixed(i, 2, {"--max-restarts=2"}, actions);
    }
    CHECK(job.exit_codes() == Codes{0, 0});
    for (const auto& node : job.nodes) {
      CHECK_THAT(node->out(), Contains("COUNT=2\n"));
      CHECK_THAT(node->err(), Contains("restart 1 of 2") && Contains("restart 2 of 2"));
    }
    // The other node's worker may be stopped before it has said anything.
    CHECK_THAT(job.nodes[0]->out() + job.nodes[1]->out(),
               Contains("COUNT=0\n") && Contains("COUNT=1\n"));
    CHECK(nothing_left(job.tmp));
  }
}

TEST_CASE("workers that save and leave with exit code 75 end the job so on all nodes", "[nodes]") {
  Cluster job;
  for (int i = 0; i < 2; ++i) {
    job.start(trainer_job(job.tmp, job.fixed_options(i, 2, {"--max-restarts=3"}),
                          {"print=up", "@0hold=USR1", "@0exit=75", "trap-exit=75", "wait"}));
  }
  job.nodes[1]->wait_for("waiting");
  ::kill(pid_after(*job.nodes[0], "holding"), SIGUSR1);
  job.nodes[1]->wait_for("about to leave, too");
  // They are given the grace period to leave on their own, then asked to.
  ::kill(pid_after(*job.nodes[1], "waiting"), SIGTERM);
  CHECK(job.exit_codes() == Codes{75, 75});
}

TEST_CASE("SIGTERM at all nodes is forwarded, and code 75 of the workers is the job's", "[nodes]") {
  Cluster job;
  for (int i = 0; i < 2; ++i)
    job.start(trainer_job(job.tmp, job.elastic_options("1:2"), {"trap-exit=75", "wait"}));
  for (const auto& node : job.nodes) node->wait_for("waiting");
  for (const auto& node : job.nodes) node->signal(SIGTERM);
  for (const int code : job.exit_codes()) CHECK((code == 75 || code == 128 + SIGTERM));
}

TEST_CASE("a worker that hangs on one node fails the job on all", "[nodes]") {
  Cluster job;
  job.fixed(0, 2, {}, {"wait"});
  job.fixed(1, 2, {"--hang-timeout=1"}, {"beat=step=1", "wait"});
  CHECK(job.exit_codes() == Codes{124, 124});
  CHECK_THAT(job.nodes[0]->err(), Contains("rank      : 1 (local_rank: 0)"));
}

TEST_CASE("every node keeps its own grace period", "[nodes]") {
  Cluster job;
  job.fixed(0, 2, {"--shutdown-timeout=300"}, {"trap-exit=0", "@0hold=USR1", "@0exit=5", "wait"});
  job.fixed(1, 2, {"--shutdown-timeout=1"}, {"ignore=TERM", "wait"});
  job.nodes[1]->wait_for("waiting");
  ::kill(pid_after(*job.nodes[0], "holding"), SIGUSR1);
  CHECK(job.exit_codes() == Codes{5, 5});
  CHECK_THAT(job.nodes[1]->err(), Contains("1 worker did not stop within 1 s; killed"));
}

TEST_CASE("a node that has finished fails with the job if another one fails later", "[nodes]") {
  Cluster job;
  job.fixed(0, 2, {}, {"@0print=done", "@1hold=USR1", "@1exit=6"});
  job.fixed(1, 2, {}, {"@1hold=USR1", "@1exit=6"});
  job.nodes[0]->wait_for("done");
  ::kill(pid_after(*job.nodes[1], "holding"), SIGUSR1);
  CHECK(job.exit_codes() == Codes{6, 6});
  CHECK_THAT(job.nodes[0]->err(), Contains("exitcode  : 6"));
}

TEST_CASE("a program that one node lacks ends the job on all, with its name", "[nodes]") {
  Cluster job;
  job.fixed(0, 2, {}, {"wait"});
  auto child = stub_job(
      job.tmp,
      {"--nnodes=2", "--node-rank=1", "--master-addr=" + job.host, "--master-port=" + job.port},
      {});
  child.argv.back() = "/no/such/program";
  ChildProgram& lacking = job.start(child);
  CHECK(finish(lacking) != 0);
  CHECK_THAT(lacking.err(), Contains("/no/such/program"));
  // It ends before it can join: nothing is known of it, so the other one waits for it.
  job.nodes[0]->wait_for("missing: --node-rank=1");
  job.nodes[0]->signal(SIGTERM);
  CHECK(finish(*job.nodes[0]) == 128 + SIGTERM);
}

// ---- the network ------------------------------------------------------------------------------

TEST_CASE("options that differ between nodes are refused by name", "[nodes]") {
  const auto refusal = [](const Lines& own) {
    Cluster job;
    ChildProgram& a = job.elastic("1:3", {"--rdzv-id=job", "--max-restarts=1"}, {"wait"});
    a.wait_for("waiting");
    Lines options{"--rdzv-backend=c10d", "--rdzv-endpoint=" + job.endpoint(), "--nnodes=1:3",
                  "--rdzv-id=job", "--max-restarts=1"};
    options.insert(options.end(), own.begin(), own.end());
    ChildProgram& b = job.start(options, {"wait"});
    CHECK(finish(b) == 1);
    CHECK(b.err_lines().size() == 1);
    CHECK(lines_of(a.out()).size() == 1);  // not affected
    const std::string here = b.err();
    a.signal(SIGTERM);
    finish(a);
    return here + a.err();
  };
  CHECK_THAT(refusal({"--nnodes=1:4"}),
             Contains("refused this node: its --nnodes is 1:4, this job's is 1:3;") &&
                 Contains("a node at 127.0.0.1 was rejected: its --nnodes is 1:4, this"));
  CHECK_THAT(refusal({"--max-restarts=2"}), Contains("its --max-restarts is 2, this job's is 1"));
  CHECK_THAT(refusal({"--rdzv-id=other"}), Contains("its job is not --rdzv-id=other") &&
                                               Contains("--rdzv-id=other (") &&
                                               Contains("this job's is job;"));
}

TEST_CASE("two nodes with the same --node-rank: the second is told who has it", "[nodes]") {
  Cluster job;
  ChildProgram& master = job.fixed(0, 3, {}, {});
  job.fixed(1, 3, {}, {});
  master.wait_for("missing: --node-rank=2");
  ChildProgram& twin = job.fixed(1, 3, {}, {});
  CHECK(finish(twin) == 1);
  CHECK_THAT(twin.err(), Contains("--node-rank=1 is taken by "));
  job.fixed(2, 3, {}, {});
  CHECK(finish(master) == 0);
}

TEST_CASE("an endpoint that nobody answers is named with the cause", "[nodes]") {
  Cluster job;
  ChildProgram& a = job.fixed(1, 2, {"--rdzv-conf=timeout=1"}, {});
  CHECK(finish(a) == 1);
  CHECK_THAT(a.err(), Contains("cannot reach the rendezvous at " + job.endpoint()) &&
                          Contains("Connection refused"));
  ChildProgram& b = job.elastic("2", {"--rdzv-conf=read_timeout=1,is_host=0"}, {});
  CHECK(finish(b) == 1);
  CHECK_THAT(b.err(), Contains("Connection refused"));
  CHECK(b.err_lines().size() == 1);
}

TEST_CASE("a name that nobody knows is named", "[nodes]") {
  Cluster job;
  job.host = "no-such-host.invalid";
  ChildProgram& a = job.elastic("2", {"--rdzv-conf=read_timeout=1"}, {});
  CHECK(finish(a) == 1);
  CHECK_THAT(a.err(), Contains("the name 'no-such-host.invalid' is not known"));
}

TEST_CASE("too few nodes end with a line that counts them", "[nodes]") {
  Cluster job;
  ChildProgram& a = job.elastic("2", {"--rdzv-conf=join_timeout=1"}, {});
  CHECK(finish(a) == 1);
  CHECK(a.err() ==
        "error: 1 node of at least 2 joined within 1 s (--rdzv-conf=join_timeout); the rendezvous "
        "is at 127.0.0.1, where other machines cannot reach it: give all nodes "
        "--rdzv-endpoint=HOST:PORT of one of them\n");
  ChildProgram& b = job.fixed(0, 2, {"--rdzv-conf=timeout=1"}, {});
  CHECK(finish(b) == 1);
  CHECK_THAT(b.err(), Contains("missing: --node-rank=1"));
}

TEST_CASE("a port that another program has is named", "[nodes]") {
  const auto other = launch::listen_for_workers("127.0.0.1", 0);
  Cluster job;
  job.port = std::to_string(launch::port_of(other.get()));
  ChildProgram& a = job.fixed(0, 2, {}, {});
  CHECK(finish(a) == 1);
  CHECK_THAT(a.err(), Contains(job.endpoint()) && Contains("Address already in use"));
}

TEST_CASE("nodes without the token are turned away, and the job goes on", "[nodes]") {
  Cluster job;
  const std::string token = job.tmp.write("token", std::string(32, 'a') + "\n");
  const std::string wrong = job.tmp.write("wrong", std::string(32, 'b') + "\n");
  for (const std::string& file : {token, wrong}) ::chmod(file.c_str(), 0600);
  const std::string with = "--rdzv-token-file=" + token;
  ChildProgram& a = job.elastic("2", {with}, {"env=RANK"});
  for (const Lines& options : {Lines{"--rdzv-token-file=" + wrong}, Lines{}}) {
    auto own = options;
    own.emplace_back("--rdzv-conf=is_host=0");
    ChildProgram& stranger = job.elastic("2", own, {"env=RANK"});
    CHECK(finish(stranger) == 1);
    CHECK_THAT(stranger.err(), Contains("authentication failed") && Contains("--rdzv-token-file"));
  }
  a.wait_for(
      "127.0.0.1 connected to the rendezvous and did not prove that it knows this job's token");
  ChildProgram& b = job.elastic("2", {with}, {"env=RANK"});
  CHECK(finish(b) == 0);
  CHECK(finish(a) == 0);
}

TEST_CASE("a token file that is missing or too short is a usage error", "[nodes]") {
  Cluster job;
  const std::string weak = job.tmp.write("token", "short\n");
  ::chmod(weak.c_str(), 0600);
  for (const std::string& file : {weak, job.tmp / "missing"}) {
    ChildProgram& a = job.elastic("2", {"--rdzv-token-file=" + file}, {});
    CHECK(finish(a) == 2);
    CHECK_THAT(a.err(), Contains("must be a readable file of 16 to 4096 bytes"));
  }
}

}  // namespace
}  // namespace ddp::test
