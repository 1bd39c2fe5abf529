// Nodes that fail their preflight, or fail first too often, are left out: real processes.
#include <signal.h>

#include <algorithm>
#include "tests/support/catch.h"

#include "launcher/plan/preflight.h"
#include "launcher/process/check_process.h"
#include "tests/launcher/nodes.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Lines = std::vector<std::string>;

// A shell script as the check. In the first run $RUN is 1, in the second 2, for each value of
// $NODE.
std::string check_script(const TempFolder& tmp, const std::string& body) {
  const std::string runs = tmp / "runs.$NODE";
  return tmp.write("check",
                   "#!/bin/sh\necho x >> " + runs + "\nRUN=$(wc -l < " + runs + ")\n" + body + "\n",
                   true);
}

long runs_of(const TempFolder& tmp, const std::string& node = "") {
  const std::string lines = text_of(tmp / ("runs." + node));
  return std::count(lines.begin(), lines.end(), '\n');
}

// ---- what is run ------------------------------------------------------------------------------

TEST_CASE("a preflight is a program with arguments, or trainer's doctor in as many ranks") {
  const TempFolder tmp;
  const std::string trainer = tmp.write("trainer", "#!/bin/sh\n", true);
  const launch::ProgramPlaces places{
      .path = "/bin:/usr/bin", .own_folder = tmp.path(), .python = ""};
  const launch::Environment environment{{"PET_NNODES", "4"}, {"HOME", "/root"}};
  launch::PreflightJob job{.run_id = "job", .local_world_size = 3};
  const auto given = launch::plan_preflight("sh  -c true", job, places, environment);
  CHECK(given->command.argv == Lines{"sh", "-c", "true"});
  CHECK_THAT(given->command.executable, Catch::EndsWith("/sh"));
  CHECK(given->environment == launch::Environment{{"HOME", "/root"},
                                                  {"LOCAL_WORLD_SIZE", "3"},
                                                  {"TORCHELASTIC_RUN_ID", "job"}});
  const auto automatic = launch::plan_preflight("auto", job, places, environment);
  CHECK(automatic->shown == "trainer doctor --quick");
  CHECK(automatic->command.argv == Lines{"ddp-run", "--standalone", "--nproc-per-node=3",
                                         "--log-dir=/dev/null", "--report-lines=0", trainer,
                                         "doctor", "--quick"});
  job.gpus = 2;
  CHECK(launch::plan_preflight("auto", job, places, environment)->command.argv.back() ==
        "--ranks_per_device=2");
  const launch::ProgramPlaces bare{.path = "/nowhere", .own_folder = "/nowhere", .python = ""};
  CHECK_FALSE(launch::plan_preflight("auto", job, bare, environment));
  for (const char* wrong : {"/no/such", "no-such", " "}) {
    CHECK_THROWS_WITH(launch::plan_preflight(wrong, job, bare, environment),
                      Contains("no such executable file"));
  }
}

TEST_CASE("of a check's output the last error is told, else the last line") {
  CHECK(launch::telling_line("").empty());
  CHECK(launch::telling_line("a\nb\n\n") == "b");
  CHECK(launch::telling_line("error: a\nb\n") == "error: a");
  CHECK(launch::telling_line("error: a\n error: b \nc") == "error: b");
  CHECK(launch::telling_line("\x1b[31mred\n") == "?[31mred");
  CHECK(launch::telling_line(std::string(9000, 'x')).size() == 300);
}

// ---- one node ---------------------------------------------------------------------------------

TEST_CASE(
    "a node that passes its preflight runs the job, and is checked again after a crash only") {
  const TempFolder tmp;
  const std::string check = check_script(tmp, "[ \"$LOCAL_WORLD_SIZE\" = 2 ]");
  const auto done = run_to_end(
      stub_job(tmp, {"--nproc-per-node=2", "--max-restarts=2", "--preflight=" + check + " now"},
               {"@1#0exit=3"}));
  CHECK(done.exit == 0);
  CHECK(runs_of(tmp) == 2);
}

TEST_CASE("a failed preflight ends a single-node job with one line, before any worker starts") {
  const TempFolder tmp;
  const std::string check =
      check_script(tmp, "echo loading; echo 'error: GPU 5 is lost' >&2; echo bye; exit 3");
  const auto done = run_to_end(stub_job(tmp, {"--preflight=" + check}, {"env=RANK"}));
  CHECK(done.exit == 1);
  CHECK(done.out.empty());
  REQUIRE(lines_of(done.err).size() == 1);
  CHECK_THAT(done.err, Catch::StartsWith("error: preflight failed on ") &&
                           Contains(": " + check + " exited with 3: error: GPU 5 is lost"));
}

TEST_CASE("a check that dies, is missing, or cannot be executed") {
  const TempFolder tmp;
  const std::string check = check_script(tmp, "kill -9 $$");
  CHECK_THAT(run_to_end(stub_job(tmp, {"--preflight=" + check}, {})).err,
             Contains("check killed by SIGKILL"));
  const auto missing = run_to_end(stub_job(tmp, {"--preflight=/no/such"}, {}));
  CHECK(missing.exit == 127);
  CHECK_THAT(missing.err, Contains("--preflight=/no/such: no such executable file"));
  const std::string broken = tmp.write("broken", "#!/no/such/shell\n", true);
  const auto unstarted = run_to_end(stub_job(tmp, {"--preflight=" + broken}, {}));
  CHECK(unstarted.exit == 1);
  CHECK_THAT(unstarted.err, Contains("preflight failed on ") && Contains("cannot execute"));
}

TEST_CASE("a signal during the preflight ends the job at once, and nothing is left of the check") {
  const TempFolder tmp;
  const std::string check = check_script(tmp, "sleep 1000 & kill -TERM $PPID; exec sleep 1000");
  ChildProgram job(stub_job(tmp, {"--preflight=" + check}, {}));
  job.wait_all_gone();
  CHECK(job.wait_exit() == 128 + SIGTERM);
}

TEST_CASE("a check that hangs after a crash has ten seconds", "[waits]") {
  const TempFolder tmp;
  const std::string check = check_script(tmp, "[ $RUN = 1 ] || exec sleep 1000");
  ChildProgram job(stub_job(tmp, {"--max-restarts=1", "--preflight=" + check}, {"exit=3"}));
  job.wait_all_gone();
  CHECK(job.wait_exit() == 1);
  CHECK_THAT(job.err(), Contains("check did not end within 10 s"));
}

// ---- several nodes ----------------------------------------------------------------------------

ChildOptions named_node(const Cluster& cluster, const std::string& name, Lines options,
                        const Lines& actions) {
  options.insert(options.begin(), {"--rank-order=NODE", "--max-restarts=5"});
  ChildOptions node = stub_job(cluster.tmp, cluster.elastic_options("2:2", options), actions);
  node.set["NODE"] = name;
  return node;
}

TEST_CASE("a node that fails its preflight after a crash is left out, and a spare steps in") {
  Cluster cluster;
  const std::string check = check_script(
      cluster.tmp, "[ $NODE$RUN != b2 ] || { echo 'error: GPU 5 is lost' >&2; exit 3; }");
  const Lines options{"--preflight=" + check};
  auto& a = cluster.start(named_node(cluster, "a", options, {"#0wait"}));
  auto& b = cluster.start(named_node(cluster, "b", options, {"#0hold=USR1", "#0exit=3"}));
  a.wait_for("waiting");
  b.wait_for("holding");
  auto& c = cluster.start(named_node(cluster, "c", options, {"#0wait"}));
  c.wait_for("waits as a spare");
  b.signal(SIGUSR1);
  CHECK(cluster.exit_codes() == std::vector<int>{0, 1, 0});
  CHECK_THAT(b.err(), Contains("error: preflight failed on ") &&
                          Contains("check exited with 3: error: GPU 5 is lost"));
  CHECK_THAT(a.err(), Contains("leaves the job (preflight failed on "));
}

TEST_CASE("a node that fails its first preflight never joins, and the others begin without it") {
  Cluster cluster;
  const std::string check = check_script(cluster.tmp, "[ $NODE != b ]");
  const Lines options{"--preflight=" + check};
  auto& a = cluster.start(named_node(cluster, "a", options, {"env=WORLD_SIZE"}));
  auto& b = cluster.start(named_node(cluster, "b", options, {"env=WORLD_SIZE"}));
  CHECK(finish(b) == 1);
  auto& c = cluster.start(named_node(cluster, "c", options, {"env=WORLD_SIZE"}));
  CHECK(finish(c) == 0);
  CHECK(finish(a) == 0);
  CHECK_THAT(b.err(), Contains("check exited with 1"));
  CHECK(b.out().empty());
}

TEST_CASE("with --node-rank a failed preflight ends the job on all nodes") {
  Cluster cluster;
  const std::string check = check_script(cluster.tmp, "[ $NODE != b ]");
  const auto node = [&](int rank, const std::string& name) -> ChildProgram& {
    ChildOptions child = stub_job(
        cluster.tmp, cluster.fixed_options(rank, 2, {"--preflight=" + check}), {"env=RANK"});
    child.set["NODE"] = name;
    return cluster.start(child);
  };
  auto& b = node(1, "b");
  auto& a = node(0, "a");
  CHECK(cluster.exit_codes() == std::vector<int>{1, 1});
  CHECK_THAT(a.err(),
             Contains("error: node 1, ") && Contains("leaves the job (preflight failed on "));
  CHECK_THAT(b.err(), Contains("error: preflight failed on "));
  CHECK((a.out() + b.out()).empty());
}

TEST_CASE(
    "a node that fails first in two rounds is excluded, the host as well, and a spare steps in") {
  const std::string culprit = GENERATE("a", "b");
  Cluster cluster;
  const Lines options{"--quarantine-after=2"};
  const auto node = [&](const std::string& name) -> ChildProgram& {
    const bool fails = name == culprit;
    return cluster.start(named_node(
        cluster, name, options,
        fails ? Lines{"#1hold=USR1", "exit=3"} : Lines{"#0wait", "#1wait", "env=WORLD_SIZE"}));
  };
  auto& a = node("a");
  auto& b = node("b");
  auto& guilty = culprit == "a" ? a : b;
  auto& other = culprit == "a" ? b : a;
  guilty.wait_for("holding");
  auto& c = node("c");
  c.wait_for("waits as a spare");
  guilty.signal(SIGUSR1);
  CHECK(finish(guilty) == 1);
  CHECK(finish(other) == 0);
  CHECK(finish(c) == 0);
  CHECK_THAT(guilty.err(),
             Contains("this node is excluded from the job: its workers were the first to "
                      "fail in 2 rounds (--quarantine-after=2)"));
  CHECK_THAT(other.err(), Contains("is excluded: its workers were the first to fail in 2 rounds"));
  CHECK_THAT(c.out(), Contains("WORLD_SIZE=2"));
}

TEST_CASE("quarantine-after says when it can have no effect") {
  const TempFolder tmp;
  CHECK_THAT(run_to_end(stub_job(tmp, {"--quarantine-after=2", "--max-restarts=1"}, {})).err,
             Contains("--quarantine-after has no effect without --rdzv-backend=c10d"));
}

}  // namespace
}  // namespace ddp::test
