// Signals to ddp-run and the end of a job, as its users see them: real processes, stub workers.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/launcher/ddp_run.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"

namespace ddp::test {
namespace {

using Catch::Contains;

TEST_CASE("SIGTERM and SIGINT reach every worker and the exit code is 128 + signal") {
  for (const int signal : {SIGTERM, SIGINT}) {
    const TempFolder tmp;
    ChildProgram job(
        stub_job(tmp, {"--nproc_per_node=2", "--max_restarts=3"}, {"trap-exit=9", "wait"}));
    job.wait_for("waiting", 2);
    job.signal(signal);
    CHECK(job.wait_exit() == 128 + signal);
    job.wait_all_gone();
    const std::string got = signal == SIGTERM ? "got SIGTERM" : "got SIGINT";
    const auto lines = job.out_lines();
    CHECK(std::count(lines.begin(), lines.end(), got) == 2);
    CHECK(job.err_lines().size() == 1);
  }
}

TEST_CASE("SIGHUP and SIGQUIT end the job, too") {
  for (const int signal : {SIGHUP, SIGQUIT}) {
    const TempFolder tmp;
    ChildProgram job(stub_job(tmp, {}, {"wait"}));
    job.wait_for("waiting");
    job.signal(signal);
    CHECK(job.wait_exit() == 128 + signal);
  }
}

TEST_CASE("a SIGHUP that was ignored at start stays ignored, in the workers as well") {
  const TempFolder tmp;
  auto options = stub_job(tmp, {}, {"signals", "trap-exit=0", "wait"});
  options.ignore = {SIGHUP};
  ChildProgram job(options);
  job.wait_for("waiting");
  CHECK_THAT(job.out(), Contains("SigIgn:\t0000000000000001"));
  job.signal(SIGHUP);
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
}

TEST_CASE("an inherited SIG_IGN for SIGCHLD loses no exit code") {
  const TempFolder tmp;
  auto options = stub_job(tmp, {}, {"exit=4"});
  options.ignore = {SIGCHLD};
  CHECK(run_to_end(options).exit == 4);
}

TEST_CASE("workers that ignore the signal are killed when the shutdown timeout is over") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {"--shutdown-timeout=0.1"}, {"ignore=TERM", "wait"}));
  job.wait_for("waiting");
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
  CHECK_THAT(job.err(), Contains("did not stop within 0.1 s"));
}

TEST_CASE("the shutdown timeout holds while workers write without end") {
  const TempFolder tmp;
  ChildProgram job(in_shell(
      "exec \"$@\" 2>/dev/null",
      stub_job(tmp,
               {"--tee=3", "--log-dir=/dev/null", "--nproc_per_node=3", "--shutdown-timeout=1"},
               {"ignore=TERM", "@1hold=USR1", "@1exit=3", "print=is loud", "err-for-ever"})));
  job.wait_for("is loud", 2);
  ::kill(pid_after(job, "holding"), SIGUSR1);
  CHECK(job.wait_exit() == 3);
}

TEST_CASE("a poll that fails ends the job with one line instead of a spin") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {}, {"parent", "note=USR1", "wait"}));
  const pid_t agent = agent_of(job);
  job.wait_for("waiting ");
  const rlimit too_few{2, 2};
  REQUIRE(::prlimit(agent, RLIMIT_NOFILE, &too_few, nullptr) == 0);
  job.signal(SIGUSR1);  // the poll in progress when the limit falls still succeeds
  CHECK(job.wait_exit() == 1);
#ifndef DDP_SANITIZED  // a sanitizer needs descriptors, too, and ends the agent in words of its own
  CHECK_THAT(job.err(), Catch::StartsWith("error: cannot wait for the workers: Invalid argument"));
#endif
  job.wait_all_gone();
}

TEST_CASE(
    "a worker that catches a signal gets it alone, its group only one that it does not catch") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {"--shutdown-timeout=60"},
                            {"helper", "note=USR1", "note=TERM", "ignore=USR2", "wait"}));
  const pid_t child = pid_after(job, "helper");
  const pid_t worker = pid_after(job, "waiting");
  job.signal(SIGUSR2);
  job.signal(SIGUSR1);
  job.wait_for("got SIGUSR1");
  CHECK_FALSE(is_pending(child, SIGUSR1));
  job.signal(SIGTERM);
  job.wait_for("got SIGTERM");
  CHECK(is_pending(child, SIGUSR2));
  CHECK_FALSE(is_pending(child, SIGTERM));
  ::kill(worker, SIGKILL);
  CHECK(job.wait_exit() == 128 + SIGTERM);
}

// ddp-run [options] sh -c SCRIPT, in which "$@" is the stub worker.
ChildOptions script_job(const TempFolder& tmp, const std::vector<std::string>& options,
                        const std::string& script, const std::vector<std::string>& actions) {
  ChildOptions job = stub_job(tmp, options, actions);
  const auto program = std::find(job.argv.begin(), job.argv.end(), kStub);
  job.argv.insert(program, {"/bin/sh", "-c", script, "sh"});
  return job;
}

TEST_CASE("what a shell script runs gets Ctrl-C, although shells catch it") {
  const TempFolder tmp;
  ChildProgram job(
      script_job(tmp, {"--shutdown-timeout=60"}, "\"$@\"; exit $?", {"trap-exit=7", "wait"}));
  job.wait_for("waiting");
  job.signal(SIGINT);
  CHECK(job.wait_exit() == 128 + SIGINT);
  CHECK_THAT(job.out(), Contains("got SIGINT"));
}

// Longer than a leftover process has otherwise: SIGTERM after 1 s, SIGKILL after 2 s.
constexpr std::chrono::milliseconds kLeftoverTime{2'500};

long count_of(const ChildProgram& job, const std::string& line) {
  const auto lines = job.out_lines();
  return std::count(lines.begin(), lines.end(), line);
}

TEST_CASE("what a shell script runs has the whole shutdown timeout, and gets the signal once",
          "[waits]") {
  const std::string script = GENERATE("\"$@\"; exit $?", "sh -c '\"$@\"; exit $?' sh \"$@\"; exit",
                                      "(\"$@\" &); sleep 600; exit");
  const TempFolder tmp;
  ChildProgram job(
      script_job(tmp, {"--shutdown-timeout=60"}, script, {"helper", "note=TERM", "wait"}));
  const pid_t helper = pid_after(job, "helper");
  const pid_t program = pid_after(job, "waiting");
  job.signal(SIGTERM);
  job.wait_for("got SIGTERM");
  std::this_thread::sleep_for(kLeftoverTime);
  CHECK(::kill(program, 0) == 0);
  CHECK_FALSE(is_pending(helper, SIGTERM));
  ::kill(program, SIGKILL);
  CHECK(job.wait_exit() == 128 + SIGTERM);
  CHECK(count_of(job, "got SIGTERM") == 1);
  CHECK_THAT(job.err(), !Contains("killed"));
}

TEST_CASE("what a shell script runs is killed, with one line, when the shutdown timeout is over") {
  const TempFolder tmp;
  ChildProgram job(
      script_job(tmp, {"--shutdown-timeout=2"}, "\"$@\"; exit $?", {"note=TERM", "wait"}));
  job.wait_for("waiting");
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
  CHECK(count_of(job, "got SIGTERM") == 1);
  CHECK_THAT(job.err(),
             Contains("ddp-run: 1 process of ended workers did not stop within 2 s; killed\n"));
}

TEST_CASE("a failure elsewhere gives what a shell script runs time to save, too") {
  const TempFolder tmp;
  ChildProgram job(script_job(tmp, {"--nproc-per-node=2", "--shutdown-timeout=60"},
                              "\"$@\"; exit $?",
                              {"@0note=TERM", "print=up", "@1hold=USR1", "@1exit=3", "wait"}));
  job.wait_for("up", 2);
  const pid_t saves = pid_after(job, "waiting");
  ::kill(pid_after(job, "holding"), SIGUSR1);
  job.wait_for("got SIGTERM");
  std::this_thread::sleep_for(kLeftoverTime);
  CHECK(::kill(saves, 0) == 0);
  ::kill(saves, SIGKILL);
  CHECK(job.wait_exit() == 3);
  CHECK(count_of(job, "got SIGTERM") == 1);
}

TEST_CASE("a forwarded signal reaches the program below a shell that catches it, alone and once") {
  const TempFolder tmp;
  ChildProgram job(script_job(tmp, {}, "\"$@\"; echo code $?",
                              {"helper", "hold=USR2", "note=USR1", "note=TERM", "wait"}));
  const pid_t helper = pid_after(job, "helper");
  const pid_t program = pid_after(job, "holding");
  job.signal(SIGUSR1);
  job.wait_for("held back");
  ::kill(program, SIGUSR2);
  job.wait_for("got SIGUSR1");
  job.signal(SIGUSR1);
  job.wait_for("got SIGUSR1", 2);
  CHECK_FALSE(is_pending(helper, SIGUSR1));
  ::kill(program, SIGKILL);
  CHECK(job.wait_exit() == 0);  // of the shell, which lives
  CHECK(count_of(job, "got SIGUSR1") == 2);
  CHECK_THAT(job.out(), Contains("code 137\n"));
}

TEST_CASE("a worker that is no shell loses no forwarded signal to a process below it") {
  const TempFolder tmp;
  ChildOptions options = stub_job(tmp, {}, {"note=USR1", "wait"});
  options.argv.insert(std::find(options.argv.begin(), options.argv.end(), kStub),
                      {"flock", tmp.path()});
  ChildProgram job(options);
  job.wait_for("waiting");
  job.signal(SIGUSR1);
  job.wait_for("held back");
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
  CHECK(count_of(job, "got SIGUSR1") == 0);
}

TEST_CASE("a shell's own trap gets a forwarded signal that nothing below it catches") {
  const TempFolder tmp;
  ChildProgram job(script_job(
      tmp, {}, "trap 'echo trapped; kill -KILL $!' USR1; \"$@\" & wait; wait", {"wait"}));
  job.wait_for("waiting");
  job.signal(SIGUSR1);
  job.wait_for("trapped");
  CHECK(job.wait_exit() == 0);
}

TEST_CASE("a worker in sigwait gets a forwarded signal for which it waits at once") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {}, {"hold=USR1", "print=took it"}));
  job.wait_for("holding");
  job.signal(SIGUSR1);
  CHECK(job.wait_exit() == 0);
  CHECK_THAT(job.out(), Contains("took it"));
  CHECK_THAT(job.err(), !Contains("held back"));
}

TEST_CASE("a signal that no worker could take before the restart reaches the next round") {
  const TempFolder tmp;
  ChildProgram job(
      stub_job(tmp, {"--max-restarts=1"}, {"#0hold=USR2", "#0exit=3", "note=USR1", "wait"}));
  const pid_t worker = pid_after(job, "holding");
  job.signal(SIGUSR1);
  job.wait_for("ddp-run: SIGUSR1 is held back until 1 worker handles it");
  ::kill(worker, SIGUSR2);
  job.wait_for("got SIGUSR1");
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
}

TEST_CASE("a signal that comes while the group is stopped reaches this round and the next") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp,
                            {"--nproc_per_node=2", "--max-restarts=1", "--shutdown-timeout=60"},
                            {"note=USR1", "@0#0note=TERM", "@1#0hold=USR2", "@1#0exit=3", "wait"}));
  const pid_t failing = pid_after(job, "holding");
  const pid_t saving = pid_after(job, "waiting");
  ::kill(failing, SIGUSR2);
  job.wait_for("got SIGTERM");
  job.signal(SIGUSR1);
  job.wait_for("got SIGUSR1");
  ::kill(saving, SIGKILL);
  job.wait_for("got SIGUSR1", 3);
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
}

TEST_CASE("a signal that was asked for ends the job like SIGTERM") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {"--signals-to-handle=SIGUSR1", "--shutdown-timeout=60"},
                            {"note=USR1", "wait"}));
  const pid_t worker = pid_after(job, "waiting");
  job.signal(SIGUSR1);
  job.wait_for("got SIGUSR1");
  ::kill(worker, SIGKILL);
  CHECK(job.wait_exit() == 128 + SIGUSR1);
}

constexpr const char* kInterrupted =
    "ddp-run: the job was interrupted by SIGINT after a failure; first failure: rank 1, exit code "
    "3";

// Rank 1 fails with its reason on stderr; rank 0 does not let itself be stopped by that.
ChildOptions failing_job(const TempFolder& tmp, const std::vector<std::string>& options) {
  std::vector<std::string> all{"--nproc_per_node=2", "--result-json=" + tmp.path() + "/result",
                               "--events=" + tmp.path() + "/events",
                               "--log-dir=" + tmp.path() + "/logs"};
  all.insert(all.end(), options.begin(), options.end());
  return stub_job(tmp, all,
                  {"@0note=TERM", "@0note=USR1", "print=up", "@1hold=USR1",
                   "@1err=ValueError: bad shape\\n", "@1exit=3", "@0wait"});
}

void fail_rank_1(ChildProgram& job) {
  job.wait_for("up", 2);
  ::kill(pid_after(job, "holding"), SIGUSR1);
}

void check_first_failure(const TempFolder& tmp, const ChildProgram& job) {
  CHECK_THAT(job.err(), Contains(kInterrupted) && Contains("  stderr    : ValueError: bad shape"));
  const auto result = nlohmann::json::parse(text_of(tmp.path() + "/result"));
  CHECK(result["outcome"] == "interrupted");
  CHECK(result["exit_code"] == 130);
  REQUIRE(result["failures"].size() == 1);
  CHECK(result["failures"][0]["rank"] == 1);
  CHECK(result["failures"][0]["exit_code"] == 3);
  CHECK_THAT(text_of(tmp.path() + "/events"), Contains("\"state\":\"FAILED\""));
  const auto said = run_to_end({.argv = {kDdpRun, "--explain=" + tmp / "logs"}});
  CHECK_THAT(said.out, Contains("SIGINT ended the job: Ctrl-C.\n") && Contains(kInterrupted) &&
                           Contains("ValueError: bad shape"));
}

TEST_CASE("a failure is reported although Ctrl-C comes while the others are stopped") {
  const TempFolder tmp;
  ChildProgram job(failing_job(tmp, {}));
  fail_rank_1(job);
  job.wait_for("got SIGTERM");
  job.signal(SIGINT);
  job.signal(SIGUSR1);  // is taken after it and passed on
  job.wait_for("got SIGUSR1");
  ::kill(pid_after(job, "waiting"), SIGKILL);
  CHECK(job.wait_exit() == 128 + SIGINT);
  check_first_failure(tmp, job);
}

TEST_CASE("Ctrl-C ends ddp-run while it waits for the rest of a named pipe") {
  const TempFolder tmp;
  const std::string pipe = tmp / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  using Options = std::vector<std::string>;
  for (const Options& options :
       {Options{"--hosts=@" + pipe},
        Options{"--nnodes=2", "--rdzv-endpoint=127.0.0.1", "--rdzv-token-file=" + pipe}}) {
    ChildProgram job(stub_job(tmp, options, {}));
    const int writer = ::open(pipe.c_str(), O_WRONLY | O_CLOEXEC);  // until ddp-run reads it
    job.signal(SIGINT);
    CHECK(job.wait_exit() == 128 + SIGINT);
    CHECK_THAT(job.err(), Contains(pipe + ": SIGINT came before its end did\n"));
    ::close(writer);
  }
}

TEST_CASE("a hostfile may be a pipe, and must be readable") {
  const TempFolder tmp;
  const auto dry_run = [&](const std::string& file) {
    return run_to_end(stub_job(tmp, {"--dry-run", "--hosts=@" + file}, {}));
  };
  auto piped = in_shell("printf 'a\\nb\\n' | \"$@\"",
                        stub_job(tmp, {"--dry-run", "--hosts=@/dev/stdin"}, {}));
  piped.set["DDP_SSH"] = "/bin/rsh -x";
  const auto lines = lines_of(run_to_end(piped).out);
  REQUIRE(lines.size() == 2);
  CHECK_THAT(lines[1], Contains("/bin/rsh -x b "));
  const auto missing = dry_run(tmp / "none");
  CHECK(missing.exit == 2);
  CHECK(missing.err == "error: --hosts=@" + (tmp / "none") +
                           ": No such file or directory; give a file with one host per line\n");
  CHECK_THAT(dry_run("/proc").err, Contains("/proc: Is a directory; give a file"));
}

TEST_CASE("a worker that reached its limit on CPU time is reported so, not as someone's kill -9") {
  for (const bool hard : {true, false}) {
    const TempFolder tmp;
    const std::string limit = hard ? "ulimit -t 1" : "ulimit -c 0; ulimit -St 1";
    const auto job = run_to_end(
        in_shell(limit + "; exec \"$@\"", stub_job(tmp, {"--log-dir=" + tmp / "logs"}, {"burn"})));
    CHECK(job.exit == 128 + (hard ? SIGKILL : SIGXCPU));
    CHECK_THAT(job.err, Contains("): CPU time limit: the kernel ended it after 1 s (ulimit -t)\n"));
    CHECK_THAT(run_to_end({.argv = {kDdpRun, "--explain=" + tmp / "logs"}}).out,
               Contains("What to do:\n  raise the CPU time limit"));
  }
}

TEST_CASE("without a /dev/null no worker gets ddp-run's stdin in its place") {
  const TempFolder tmp;
  if (run_to_end(in_namespace({.argv = {"mount", "-t", "tmpfs", "none", "/dev"}})).exit != 0)
    return say_skipped("no user namespaces here");
  const auto job =
      run_to_end(in_namespace(in_shell("mount -t tmpfs none /dev && exec \"$@\"",
                                       stub_job(tmp, {"--nproc_per_node=2"}, {"print=up"}))));
  CHECK(job.exit == 1);
  CHECK_THAT(job.err, Catch::StartsWith("error: cannot open /dev/null: No such file or directory"));
}

}  // namespace
}  // namespace ddp::test
