// Jobs that ddp-run starts on several hosts, with a shell in place of ssh.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "tests/support/catch.h"

#include "launcher/cluster/ssh_command.h"
#include "tests/launcher/ddp_run.h"
#include "tests/support/skip.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Words = std::vector<std::string>;

/// Fails for the host "gone" as ssh does; elsewhere the command runs in a process that outlives
/// ssh.
constexpr const char* kFakeSsh = R"(#!/bin/sh
host=$1
[ "$host" = gone ] && { echo "ssh: connect to host gone port 22: No route to host" >&2; exit 255; }
HOST_NAME=$host
export HOST_NAME
/bin/sh -c "$2"
exit $?
)";

ChildOptions with_ssh(const std::string& ssh, ChildOptions job) {
  job.set["DDP_SSH"] = ssh;
  return job;
}

struct FakeHosts {
  TempFolder tmp;
  std::string ssh = tmp.write("ssh", kFakeSsh, true);

  ChildOptions job(Words options, const Words& actions) const {
    options.emplace_back("--master-addr=127.0.0.1");
    return with_ssh(ssh, test::stub_job(tmp, options, actions));
  }
};

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

// Checks the processes in lines like "a: waiting 12" and "a: descendant 13".
bool none_lives(const Words& lines) {
  return std::none_of(lines.begin(), lines.end(), [](const std::string& line) {
    return ::kill(std::stoi(line.substr(line.rfind(' ') + 1)), 0) == 0;
  });
}

// A job of a PBS script starts on its first host without ssh.
TEST_CASE(
    "a job on hosts, or of a PBS job's script, has ranks over all of them, its lines say where") {
  const bool script = GENERATE(false, true);
  const FakeHosts hosts;
  ChildOptions job = hosts.job({script ? "--scheduler=pbs" : "--hosts=a:2,b:1"},
                               {"env=HOST_NAME", "env=RANK", "env=WORLD_SIZE"});
  job.set["PBS_NODEFILE"] = hosts.tmp.write("nodes", "a\na\nb\n");
  const auto run = run_to_end(job);
  INFO(run.err);
  CHECK(run.exit == 0);
  CHECK(count_of(run.out, script ? "a: HOST_NAME=(unset)\n" : "a: HOST_NAME=a\n") == 2);
  CHECK(count_of(run.out, "b: HOST_NAME=b\n") == 1);
  CHECK(count_of(run.out, "b: RANK=2\n") == 1);
  CHECK(count_of(run.out, "WORLD_SIZE=3\n") == 3);
  CHECK(test::nothing_left(hosts.tmp));
}

TEST_CASE("a hostfile chooses the workers' GPUs") {
  const FakeHosts hosts;
  const std::string file = hosts.tmp.write("hosts", "a gpus=1,3\nb gpus=2\n");
  const auto run = run_to_end(hosts.job({"--hosts=@" + file}, {"env=CUDA_VISIBLE_DEVICES"}));
  INFO(run.err);
  CHECK(run.exit == 0);
  CHECK(count_of(run.out, "a: CUDA_VISIBLE_DEVICES=1,3\n") == 2);
  CHECK(count_of(run.out, "b: CUDA_VISIBLE_DEVICES=2\n") == 1);
}

TEST_CASE("the hosts' job gives its exit code and the cause, and stops everywhere") {
  const FakeHosts hosts;
  const auto run = run_to_end(hosts.job({"--hosts=a,b"}, {"@1exit=7", "@0wait"}));
  INFO(run.err);
  CHECK(run.exit == 7);
  CHECK_THAT(run.err, Contains("b: ") && Contains("exitcode  : 7"));
  CHECK(count_of(run.err, "Root Cause") == 1);
  CHECK_THAT(run.err, Contains("a: ddp-run: the job failed; first failure: rank 1 on "));
}

TEST_CASE("a signal to the starting ddp-run reaches the workers of all hosts") {
  const FakeHosts hosts;
  ChildProgram job(hosts.job({"--hosts=a,b"}, {"note=USR1", "trap-exit=5", "wait"}));
  job.wait_for("waiting", 2);
  job.signal(SIGUSR1);
  job.wait_for("got SIGUSR1", 2);
  job.signal(SIGTERM);
  job.wait_for("got SIGTERM", 2);
  CHECK(job.wait_exit() == 128 + SIGTERM);
  job.wait_all_gone();
}

TEST_CASE("after a signal its exit code counts, though a host hears first that another leaves") {
  const TempFolder tmp;
  // b ends with 1 and is reaped before a ends.
  constexpr const char* kSsh = R"(#!/bin/sh
[ $1 = b ] && echo $$ >{0}
read token; echo begun; read signal
[ $1 = b ] && exit 1
while kill -0 $(cat {0}); do :; done
exit 143
)";
  const std::string ssh = tmp.write("ssh", fmt::format(kSsh, tmp / "b"), true);
  ChildProgram job(with_ssh(ssh, test::stub_job(tmp, {"--hosts=a,b"}, {})));
  job.wait_for("begun", 2);
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 143);
}

TEST_CASE("when the starting ddp-run is killed nothing is left on the hosts") {
  const FakeHosts hosts;
  ChildProgram job(hosts.job({"--hosts=a,b"}, {"daemon", "wait"}));
  job.wait_for("waiting", 2);
  job.signal(SIGKILL);
  CHECK(job.wait_exit() == -SIGKILL);
  // The hosts' processes have no pipe to this test.
  wait_until([&] { return nothing_left(hosts.tmp) && none_lives(job.out_lines()); }, kSoon);
}

TEST_CASE("a second request kills workers that ignore the first, on all hosts") {
  const FakeHosts hosts;
  ChildProgram job(hosts.job({"--hosts=a,b"}, {"ignore=INT", "ignore=TERM", "note=USR1", "wait"}));
  job.wait_for("waiting", 2);
  job.signal(SIGINT);
  // Once this has its reply, the first request has been counted everywhere.
  job.signal(SIGUSR1);
  job.wait_for("got SIGUSR1", 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(150));  // nearer ones count as doubles
  job.signal(SIGINT);
  CHECK(job.wait_exit() == 128 + SIGINT);
  job.wait_all_gone();
}

TEST_CASE("a host that cannot be reached ends the job, named") {
  const FakeHosts hosts;
  const auto run = run_to_end(hosts.job({"--hosts=a,gone"}, {"wait"}));
  INFO(run.err);
  CHECK(run.exit == 255);
  CHECK_THAT(run.err, Contains("gone: ssh: connect to host gone") &&
                          Contains("error: gone: ssh ended with 255") &&
                          Contains("try: ssh gone true"));
}

TEST_CASE("an ssh that ends without a word, or is killed, is named") {
  const FakeHosts hosts;
  const auto silent =
      run_to_end(with_ssh("/bin/false", test::stub_job(hosts.tmp, {"--hosts=me@a"}, {})));
  CHECK(silent.exit == 1);
  CHECK(
      silent.err ==
      "error: a: ssh ended with 1 before ddp-run on the host said anything; try: ssh me@a true\n");
  const std::string dies = hosts.tmp.write("dies", "#!/bin/sh\nkill -9 $$\n", true);
  const auto killed = run_to_end(with_ssh(dies, test::stub_job(hosts.tmp, {"--hosts=a,a"}, {})));
  CHECK(killed.exit == 128 + SIGKILL);
  CHECK_THAT(killed.err, Contains("error: a/0: ssh was killed by SIGKILL; try: ssh a true"));
}

TEST_CASE("a job on hosts can be asked by the pid of the ddp-run that the user has started") {
  const FakeHosts hosts;
  const auto ask = [](const ChildProgram& job) {
    return run_to_end({.argv = {kDdpRun, "--status", std::to_string(job.pid())}});
  };
  ChildProgram job(hosts.job({"--hosts=a", "--rdzv-id=by-starter"}, {"wait"}));
  job.wait_for("waiting");
  const auto here = ask(job);
  CHECK(here.exit == 0);
  CHECK_THAT(here.out, Contains("job by-starter: running for "));
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
  const std::string far = hosts.tmp.write("far", "#!/bin/sh\necho begun; read end\n", true);
  ChildProgram away(with_ssh(far, test::stub_job(hosts.tmp, {"--hosts=a"}, {})));
  away.wait_for("begun");
  const auto elsewhere = ask(away);
  CHECK(elsewhere.exit == 2);
  CHECK_THAT(elsewhere.err,
             Contains("this ddp-run has no worker on this machine (yet), or is stuck; ask "));
}

TEST_CASE("an elastic job goes on without a host that it does not need") {
  const FakeHosts hosts;
  const auto child = hosts.job(
      {"--hosts=a,gone", "--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-conf=last_call_timeout=1"},
      {"print=done"});
  const auto run = run_to_end(child);
  INFO(run.err);
  CHECK(run.exit == 0);
  CHECK_THAT(run.out, Contains("a: done"));
}

TEST_CASE("a host without ddp-run, without the folder or with another version says so") {
  const FakeHosts hosts;
  const auto line = [](const launch::RemoteCommand& command) {
    return run_to_end({.argv = {"/bin/sh", "-c", launch::remote_command_line(command)},
                       .set = {{"PATH", "/nowhere"}}});
  };
  const auto missing = line({"/", "/no/ddp-run", {}, {}});
  CHECK(missing.exit == 127);
  CHECK(missing.err ==
        "error: ddp-run is not installed on this host: neither at /no/ddp-run nor on PATH\n");
  const auto folder = line({"/no such", "/no/ddp-run", {}, {}});
  CHECK(folder.exit == 1);
  CHECK_THAT(folder.err, Contains("there is no folder /no such on this host"));
  const auto version = line({"/", kDdpRun, {}, {"--lifeline=0.0.1", "--", kStub}});
  CHECK(version.exit == 2);
  CHECK_THAT(version.err, Contains("was started by ddp-run 0.0.1; install the same version"));
  const auto export_it = line({"/", kDdpRun, {"X=a  'b'"}, {"--", kStub, "env=X"}});
  CHECK(export_it.out == "X=a  'b'\n");
}

TEST_CASE("a dry run prints the command of each host") {
  const FakeHosts hosts;
  const auto run = run_to_end(hosts.job({"--hosts=a,b:2", "--dry-run"}, {}));
  CHECK(run.exit == 0);
  const auto lines = test::lines_of(run.out);
  REQUIRE(lines.size() == 2);
  CHECK_THAT(lines[1], Contains(hosts.ssh + " b 'exec /bin/sh -c "));
}
}  // namespace
}  // namespace ddp::test
