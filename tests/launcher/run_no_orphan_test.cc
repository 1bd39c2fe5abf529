// Nothing of a job outlives ddp-run, however it ends. Every descendant holds the pipes of the test:
// when they report end-of-file, nothing is left.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "tests/support/catch.h"

#include "tests/launcher/ddp_run.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Lines = std::vector<std::string>;

// Two workers, each with a child and a setsid daemon that ignore every signal.
const Lines kStubborn{"ignore=TERM", "ignore=INT", "child", "daemon", "parent", "wait"};

// It takes milliseconds; a starved machine shall not fail the test.
constexpr std::chrono::seconds kSoon{5};

pid_t agent_of(ChildProgram& job) { return std::stoi(job.wait_for("parent ").substr(7)); }

TEST_CASE("SIGKILL of ddp-run leaves nothing behind") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {"--nproc_per_node=2"}, kStubborn));
  job.wait_for("waiting", 2);
  job.signal(SIGKILL);
  job.wait_all_gone(kSoon);
  CHECK(job.wait_exit() == -SIGKILL);
  CHECK(nothing_left(tmp));
}

TEST_CASE("SIGKILL of ddp-run's process group leaves nothing behind") {
  const TempFolder tmp;
  auto options = stub_job(tmp, {"--nproc_per_node=2"}, kStubborn);
  options.own_group = true;
  ChildProgram job(options);
  job.wait_for("waiting", 2);
  ::kill(-job.pid(), SIGKILL);
  job.wait_all_gone(kSoon);
}

TEST_CASE("SIGKILL of the agent process is reported and leaves nothing behind") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {"--nproc_per_node=2", "--max_restarts=3"}, kStubborn));
  job.wait_for("waiting", 2);
  REQUIRE(agent_of(job) != job.pid());
  ::kill(agent_of(job), SIGKILL);
  job.wait_all_gone(kSoon);
  CHECK(job.wait_exit() == 128 + SIGKILL);
  CHECK_THAT(job.err(), Contains("agent process") && Contains("was killed by SIGKILL"));
  CHECK(nothing_left(tmp));
}

TEST_CASE("SIGKILL of a worker takes its descendants along and restarts the group") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {"--nproc_per_node=2", "--max_restarts=1", "--shutdown-timeout=0"},
                            {"#0child", "#0daemon", "#0ignore=TERM", "#0wait", "print=again"}));
  const std::string line = job.wait_for("waiting", 2);
  ::kill(std::stoi(line.substr(8)), SIGKILL);
  CHECK(job.wait_exit() == 0);
  job.wait_all_gone(kSoon);
  CHECK_THAT(job.out(), Contains("again"));
}

TEST_CASE("a failed job leaves nothing behind") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {"--nproc_per_node=2", "--shutdown-timeout=0.05"},
                            {"child", "daemon", "ignore=TERM", "@1exit=3", "wait"}));
  CHECK(job.wait_exit() == 3);
  job.wait_all_gone(kSoon);
}

TEST_CASE("what a successful worker leaves running is ended with the job") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {}, {"child", "daemon", "exit=0"}));
  CHECK(job.wait_exit() == 0);
  job.wait_all_gone(kSoon);
}

TEST_CASE("a second signal kills at once and leaves nothing behind") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {"--nproc_per_node=2", "--shutdown-timeout=60"},
                            {"note=TERM", "note=INT", "child", "daemon", "wait"}));
  job.wait_for("waiting", 2);
  job.signal(SIGINT);
  job.wait_for("got SIGINT", 2);
  // Sooner, one from the same sender counts as a double of the first one.
  std::this_thread::sleep_for(std::chrono::milliseconds(350));
  job.signal(SIGINT);
  CHECK(job.wait_exit() == 128 + SIGINT);
  job.wait_all_gone(kSoon);
}

TEST_CASE("a process that ddp-run did not start is not touched") {
  // The shell has a child before it becomes ddp-run.
  const TempFolder tmp;
  auto options =
      stub_job(tmp, {"--nproc_per_node=2", "--shutdown-timeout=0"}, {"@1exit=3", "wait"});
  options.argv.insert(options.argv.begin(),
                      {"/bin/sh", "-c", "sleep 1000 & echo other $! ; exec \"$@\"", "sh"});
  ChildProgram job(options);
  const pid_t other = std::stoi(job.wait_for("other ").substr(6));
  CHECK(job.wait_exit() == 3);
  CHECK(::kill(other, 0) == 0);
  ::kill(other, SIGKILL);
  job.wait_all_gone();
}

TEST_CASE("SIGKILL of a ddp-run that had children before leaves nothing of the job behind") {
  const TempFolder tmp;
  auto options = stub_job(tmp, {"--nproc_per_node=2"}, kStubborn);
  options.argv.insert(options.argv.begin(),
                      {"/bin/sh", "-c", "sleep 1000 & echo other $! ; exec \"$@\"", "sh"});
  ChildProgram job(options);
  const pid_t other = std::stoi(job.wait_for("other ").substr(6));
  job.wait_for("waiting", 2);
  job.signal(SIGKILL);
  CHECK(job.wait_exit() == -SIGKILL);
  CHECK(::kill(other, SIGKILL) == 0);
  job.wait_all_gone(kSoon);
}

}  // namespace
}  // namespace ddp::test
