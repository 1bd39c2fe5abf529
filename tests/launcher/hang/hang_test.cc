// Workers that hang: what becomes of them, and of those that only look like it.
#include <sched.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include "tests/support/catch.h"
#include "tests/support/skip.h"

#include "launcher/hang/stack_dump.h"
#include "tests/launcher/ddp_run.h"
#include "tests/launcher/paused_reader.h"

namespace ddp::test {
namespace {

using Catch::Contains;

TEST_CASE("a worker that breaks its promise is reported with its state, and the group restarted") {
  const TempFolder tmp;
  auto options =
      stub_job(tmp, {"--nproc_per_node=2", "--max-restarts=1"},
               {"#0@1beat=timeout=0.2 step=7 phase=forward", "#0@1kill-self=STOP", "#0wait"});
  options.set["PATH"] = tmp.path();  // no debugger
  const Finished job = run_to_end(options);
  CHECK(job.exit == 0);
  CHECK_THAT(job.err, Contains("rank 1 (local rank 1, pid ") && Contains("hung: silent for") &&
                          Contains("state T (stopped") &&
                          Contains("last heartbeat: step=7 phase=forward") &&
                          Contains("restart 1 of 1"));
}

TEST_CASE(
    "a worker that stays in uninterruptible sleep for as long as torchrun allows has failed") {
  const TempFolder tmp;
  auto options = stub_job(tmp, {}, {"uninterruptible"});
  options.set["PATH"] = tmp.path();  // no debugger
  options.set["TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT"] = "0.2";
  const Finished job = run_to_end(options);
  CHECK(job.exit == 124);
  CHECK_THAT(job.err, Contains("hung: for ") && Contains(" s in state D (uninterruptible sleep"));
}

// All that this process starts shares a CPU with a process that never sleeps.
class CrowdedCpu {
 public:
  CrowdedCpu() {
    ::sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    ::sched_setaffinity(0, sizeof one, &one);
    spinner_ = ::fork();
    if (spinner_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) ::getppid();
  }
  ~CrowdedCpu() {
    ::kill(spinner_, SIGKILL);
    ::waitpid(spinner_, nullptr, 0);
    ::sched_setaffinity(0, sizeof before_, &before_);
  }

 private:
  cpu_set_t before_{};
  pid_t spinner_ = 0;
};

TEST_CASE("a worker that hardly gets a CPU is not taken for hung") {
  const TempFolder tmp;
  const CrowdedCpu crowded;
  const Finished job = run_to_end(stub_job(tmp, {}, {"beat=timeout=0.6 step=1", "work=30"}));
  CHECK(job.exit == 0);
  CHECK_THAT(job.err, !Contains("hung"));
}

TEST_CASE("of workers that hang together the report and the result name the one to blame") {
  const TempFolder tmp;
  auto options = stub_job(
      tmp, {"--nproc_per_node=2", "--result-json=" + tmp / "result"},
      {"@0hold=USR1", "@0beat=timeout=0.2 step=8 waiting=all_reduce collective=all_reduce#5",
       "@1beat=step=8 phase=data collective=all_reduce#4", "@1print=beaten", "wait"});
  options.set["PATH"] = tmp.path();
  ChildProgram job(options);
  job.wait_for("beaten");
  ::kill(pid_after(job, "holding"), SIGUSR1);
  CHECK(job.wait_exit() == 124);
  CHECK_THAT(job.err(),
             Contains("first failure: rank 1, hung") && Contains("others are waiting for it") &&
                 Contains("heartbeat : step=8 phase=data collective=all_reduce#4") &&
                 Contains("also      : rank 0 (pid ") && Contains(": hung, waiting in all_reduce"));
  const auto cause = nlohmann::json::parse(text_of(tmp / "result"))["failures"][0];
  CHECK(cause["rank"] == 1);
  CHECK(cause["step"] == 8);
  CHECK(cause["phase"] == "data");
  CHECK(cause["waiting"].is_null());
  CHECK(cause["collective"] == "all_reduce#4");
}

TEST_CASE("a promise that has become shorter counts, though nothing tells of that write") {
  const TempFolder tmp;
  auto options =
      stub_job(tmp, {"--result-json=" + tmp / "result"},
               {"beat=timeout=60 step=1", "hold=USR1", "beat=timeout=0.5 step=2", "wait"});
  options.set["PATH"] = tmp.path();
  ChildProgram job(options);
  ::kill(pid_after(job, "holding"), SIGUSR1);
  CHECK(job.wait_exit() == 124);
  CHECK(nlohmann::json::parse(text_of(tmp / "result"))["failures"][0]["step"] == 2);
}

std::string stacks_in(const std::string& text, const std::string& before) {
  const auto at = text.find(before) + before.size();
  return text.substr(at, text.find('\n', at) - at);
}

TEST_CASE("a hang that is final exits with 124 and keeps what was written about it") {
  const TempFolder tmp;
  auto options = stub_job(tmp, {"--hang-timeout=0.2"}, {"wait"});
  options.set["PATH"] = tmp.path();
  const Finished job = run_to_end(options);
  CHECK(job.exit == 124);
  CHECK_THAT(job.err, Contains("first failure: rank 0, hung") && Contains("stacks    : "));
  const std::string file = stacks_in(job.err, "stacks    : ");
  CHECK_THAT(text_of(file), Contains("state ") && Contains("thread "));
}

TEST_CASE("stacks of a hang outlive the restart, their file is named, and nothing else stays") {
  const TempFolder tmp;
  auto options = stub_job(tmp, {"--hang-timeout=0.2", "--max-restarts=2"},
                          {"#0wait", "#1exit=3", "print=third round"});
  options.set["PATH"] = tmp.path();
  const Finished job = run_to_end(options);
  CHECK(job.exit == 0);
  const std::string file = stacks_in(job.err, "; stacks: ");
  CHECK_THAT(text_of(file), Contains("thread "));
  const auto run = std::filesystem::path(file).parent_path().parent_path().parent_path();
  CHECK(run.parent_path() == tmp.path());
  for (const auto& entry : std::filesystem::directory_iterator(run))
    CHECK(entry.path().filename() == "attempt_0");
}

/// ddp-run [options] sh -c script.
ChildOptions shell_job(const TempFolder& tmp, const std::vector<std::string>& options,
                       const std::string& script) {
  ChildOptions job = stub_job(tmp, options, {"-c", script});
  *std::find(job.argv.begin(), job.argv.end(), kStub) = "/bin/sh";
  job.argv.insert(job.argv.end() - 3, "--no-python");
  return job;
}

TEST_CASE("output on stdout is a sign of life, wherever it goes", "[waits]") {
  const TempFolder tmp;
  const std::string script = "for i in 1 2 3 4 5 6; do echo line $i; sleep 0.5; done";
  const Finished shown = run_to_end(shell_job(tmp, {"--hang-timeout=2"}, script));
  CHECK(shown.exit == 0);
  CHECK(lines_of(shown.out).size() == 6);
  const Finished kept = run_to_end(
      shell_job(tmp, {"--hang-timeout=2", "--redirects=3", "--log-dir=" + tmp / "logs"}, script));
  CHECK(kept.exit == 0);
  CHECK(kept.out == "");
}

TEST_CASE("a cleaner of temporary files that removes the run's folder makes no worker hung",
          "[waits]") {
  const TempFolder tmp;
  const std::string beats =
      "exec 3>$DDP_HEARTBEAT_FILE; echo timeout=2 >&3; sleep 0.5; rm -r $TMPDIR/ddp-run_* "
      "$DDP_SHM_DIR; "
      "for i in 1 2 3 4 5 6; do echo $i >&3; sleep 0.5; done";
  CHECK(run_to_end(shell_job(tmp, {}, beats)).exit == 0);
  const std::string rewrites =
      "echo timeout=2 >$DDP_HEARTBEAT_FILE; sleep 0.5; rm -r $TMPDIR/ddp-run_* $DDP_SHM_DIR; "
      "while [ ! -d ${DDP_HEARTBEAT_FILE%/*} ]; do sleep 0.05; done; "
      "for i in 1 2 3 4 5 6; do echo timeout=2 $i >$DDP_HEARTBEAT_FILE || exit 3; sleep 0.5; done";
  CHECK(run_to_end(shell_job(tmp, {}, rewrites)).exit == 0);
  CHECK(nothing_left(tmp));
}

TEST_CASE("a rank that stops before its first heartbeat is found where every rank writes them") {
  const TempFolder tmp;
  auto options =
      stub_job(tmp, {"--nproc_per_node=2"},
               {"@1kill-self=STOP", "beat=timeout=0.5 step=0 phase=start ranks=all", "wait"});
  options.set["PATH"] = tmp.path();
  const Finished job = run_to_end(options);
  CHECK(job.exit == 124);
  CHECK_THAT(job.err, Contains("first failure: rank 1, hung") && Contains("state T (stopped"));
}

TEST_CASE("a worker whose output a paused reader does not take is not hung") {
  const TempFolder tmp;
  PausedReader reader;
  // More than the pipe holds, unnoticed by ddp-run.
  ChildProgram job(reader.redirect(">$pipe", stub_job(tmp, {},
                                                      {"beat=timeout=0.5 step=1", "err=begun\\n",
                                                       "repeat=40000:0123456789\\n"})));
  job.wait_for("begun");
  CHECK_THROWS(job.wait_for("hung", 1, std::chrono::seconds(2)));
  CHECK(reader.read_all().size() == 440'000);
  CHECK(job.wait_exit() == 0);
}

TEST_CASE("a worker that hangs elsewhere is found while the reader of its output pauses") {
  const TempFolder tmp;
  const PausedReader reader;
  reader.fill();
  auto options =
      reader.redirect(">$pipe", stub_job(tmp, {}, {"beat=timeout=0.5 step=1", "kill-self=STOP"}));
  options.set["PATH"] = tmp.path() + ":/usr/bin:/bin";
  tmp.write("gdb", "#!/bin/sh\nexit 0\n", true);
  ChildProgram job(options);
  job.wait_for("hung: silent for");
}

TEST_CASE("output is a sign of life, and --hang-timeout=0 takes no promise seriously") {
  const TempFolder tmp;
  const Finished job = run_to_end(
      stub_job(tmp, {"--hang-timeout=0", "--tee=1"}, {"beat=timeout=0.01 x", "out=alive\\n"}));
  CHECK(job.exit == 0);
  CHECK(job.err.find("hang") == std::string::npos);
}

TEST_CASE("a debugger that can be found writes the stacks") {
  const TempFolder tmp;
  tmp.write("gdb", "#!/bin/sh\necho \"#0 main of $2\"\n", true);
  auto options = stub_job(tmp, {"--hang-timeout=0.2"}, {"print=x", "wait"});
  options.set["PATH"] = tmp.path() + ":/usr/bin:/bin";
  const Finished job = run_to_end(options);
  CHECK(job.exit == 124);
  const std::string file = stacks_in(job.err, "stacks    : ");
  CHECK_THAT(text_of(file), Contains("#0 main of "));
}

TEST_CASE("a debugger that fails, as under Yama, is followed by SIGABRT") {
  const TempFolder tmp;
  tmp.write("gdb", "#!/bin/sh\necho ptrace: Operation not permitted.\nexit 1\n", true);
  auto options = stub_job(tmp, {"--hang-timeout=0.2"}, {"note=ABRT", "wait"});
  options.set["PATH"] = tmp.path() + ":/usr/bin:/bin";
  ChildProgram job(options);
  job.wait_for("got SIGABRT");
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
}

TEST_CASE("gdb's exit code says whether it could attach") {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  const auto tool = launch::stack_tool(child, "/usr/bin:/bin");
  const bool has_gdb = tool && tool->argv.front() == "gdb";
  if (has_gdb) {
    const ChildOptions gdb{.argv = tool->argv};
    const Finished attached = run_to_end(gdb);
    CHECK(attached.exit == 0);
    CHECK_THAT(attached.out, Contains("#0 "));
    REQUIRE(::ptrace(PTRACE_SEIZE, child, nullptr, nullptr) ==
            0);  // one tracer is all there may be
    CHECK(run_to_end(gdb).exit != 0);
  } else {
    test::say_skipped("no gdb here");
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_CASE("no more than two debuggers work at once") {
  const TempFolder tmp;
  tmp.write("gdb",
            "#!/bin/sh\ncd " + tmp.path() +
                "; mkdir at.$$; ls -d at.* | wc -l >>log; sleep 0.2; rmdir at.$$\n",
            true);
  auto options = stub_job(tmp, {"--nproc_per_node=4", "--hang-timeout=0.2"}, {"wait"});
  options.set["PATH"] = tmp.path() + ":/usr/bin:/bin";
  CHECK(run_to_end(options).exit == 124);
  const auto counts = lines_of(text_of(tmp / "log"));
  CHECK(counts.size() == 4);
  for (const auto& count : counts) CHECK(std::stoi(count) <= 2);
}

TEST_CASE("with --exit-grace a worker that outlives one that exited with 0 is hung") {
  const TempFolder tmp;
  const auto run =
      run_to_end(stub_job(tmp, {"--nproc_per_node=2", "--exit-grace=0.1"}, {"@1wait", "env=RANK"}));
  INFO(run.err);
  CHECK(run.exit == 124);
  CHECK(run.out.find("RANK=0\n") != std::string::npos);
  CHECK_THAT(run.err, Catch::Contains("still running 0.1 s after rank 0 exited (--exit-grace)"));
}

}  // namespace
}  // namespace ddp::test
