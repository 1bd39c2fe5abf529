// ddp-run on a terminal: who reads it, and who is notified of its size.
#include <signal.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/launcher/ddp_run.h"
#include "tests/launcher/terminal_job.h"
#include "tests/support/catch.h"

namespace ddp::test {
namespace {

TEST_CASE("rank 0 of a job in the foreground reads the terminal") {
  TerminalJob job({kDdpRun, "/bin/sh", "-c", "echo ready; read line; echo worker read $line"});
  REQUIRE(job.shows("ready"));
  job.type("hello\n");
  CHECK(job.shows("worker read hello"));
  CHECK(job.wait_exit() == 0);
}

TEST_CASE("the rank of --stdin-rank gets the terminal, for Python's debugger as well") {
  TerminalJob job({kDdpRun, "--nproc_per_node=2", "--stdin-rank=1", "/bin/sh", "-c",
                   "[ $RANK = 0 ] && { read line || echo rank 0 reads nothing; exit 0; }; exec "
                   "python3 -c 'breakpoint(); x = 1'"});
  REQUIRE(job.shows("rank 0 reads nothing"));
  job.type("p 'six times seven is', 6 * 7\n");
  CHECK(job.shows("('six times seven is', 42)"));
  job.type("c\n");
  CHECK(job.wait_exit() == 0);
}

TEST_CASE("a job in the background leaves the terminal's input to the shell") {
  TerminalJob shell({"/bin/sh", "-c", "set -m; \"$@\" & read line; echo shell read $line; wait",
                     "sh", kDdpRun, "/bin/sh", "-c", "read line || echo worker read nothing"});
  REQUIRE(shell.shows("worker read nothing"));
  shell.type("hello\n");
  CHECK(shell.shows("shell read hello"));
  CHECK(shell.wait_exit() == 0);
}

TEST_CASE("a worker's progress bar stays below the lines of other workers") {
  const TempFolder tmp;
  const std::string turn = tmp / "turn";
  REQUIRE(::mkfifo(turn.c_str(), 0600) == 0);
  TerminalJob job({kDdpRun, "--nproc_per_node=2", "/bin/sh", "-c",
                   R"(if [ $RANK = 0 ]; then printf '\r 50 %% of 10'; read line; else
                   read line < $0; echo line of rank 1; fi)",
                   turn});
  REQUIRE(job.shows("\r 50 % of 10"));
  std::ofstream(turn) << "now\n";
  CHECK(job.shows("\r\x1b[2Kline of rank 1\r\n\r 50 % of 10"));
  job.type("\n");
  CHECK(job.wait_exit() == 0);
}

TEST_CASE("what a worker prints after its progress bar is below the bar") {
  TerminalJob job({kDdpRun, "/bin/sh", "-c",
                   R"(printf '\r 50 %%' >&2; read line; kill -STOP $PPID
                   printf '\r 100 %%\n' >&2; echo loss; kill -CONT $PPID)"});
  REQUIRE(job.shows("\r 50 %"));
  job.type("\n");
  CHECK(job.shows("\r 100 %\r\nloss"));
  CHECK(job.wait_exit() == 0);
}

TEST_CASE("workers hear that the window has another size, and so does their pseudo-terminal") {
  TerminalJob job({kDdpRun, "/bin/sh", "-c",
                   "trap 'stty size <&2' WINCH; echo ready; while :; do sleep 60 & wait; done"});
  REQUIRE(job.shows("ready"));
  job.resize(33, 77);
  CHECK(job.shows("33 77"));
  job.type('\x03');
  CHECK(job.wait_exit() == 128 + SIGINT);
}

TEST_CASE("the rank of --stdin-rank is one of the job") {
  const TempFolder tmp;
  const auto run = run_to_end(stub_job(tmp, {"--nproc_per_node=2", "--stdin-rank=2"}, {}));
  CHECK(run.exit == 2);
  CHECK(run.err == "error: --stdin-rank=2: the job has ranks 0 to 1\n");
}

}  // namespace
}  // namespace ddp::test
