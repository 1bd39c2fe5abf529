// Nothing of a job outlives ddp-run, however it ends. Every descendant holds the pipes of the test:
// when they report end-of-file, nothing is left.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "tests/support/catch.h"
#include "tests/support/skip.h"

#include "launcher/process/process_tree.h"
#include "tests/launcher/ddp_run.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Lines = std::vector<std::string>;

// Two workers, each with a child and a setsid daemon that ignore every signal.
const Lines kStubborn{"ignore=TERM", "ignore=INT", "child", "daemon", "parent", "wait"};

// A child that the shell has before it becomes ddp-run.
constexpr const char* kEarlierChild = "sleep 1000 & echo other $! ; exec \"$@\"";

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

TEST_CASE("SIGKILL of the agent process leaves the logs of --tee, and the guardian says where") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {"--tee=1"}, {"parent", "print=before", "wait"}));
  job.wait_for("waiting");
  const auto log = [&] {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(tmp.path())) {
      if (entry.path().filename() == "stdout.log") return text_of(entry.path());
    }
    return std::string();
  };
  wait_until([&] { return log().find("waiting") != std::string::npos; });
  ::kill(agent_of(job), SIGKILL);
  job.wait_all_gone(kSoon);
  CHECK(job.wait_exit() == 128 + SIGKILL);
  const std::string said = "logs of this run: ";
  const auto at = job.err().find(said);
  REQUIRE(at != std::string::npos);
  const std::string folder =
      job.err().substr(at + said.size(), job.err().find('\n', at) - at - said.size());
  CHECK_THAT(test::text_of(folder + "/attempt_0/0/stdout.log"), Contains("before"));
}

TEST_CASE("children that a dead main thread has left to another thread are killed") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    ::alarm(60);
    if (::fork() == 0) ::_exit(::pause());  // holds the pipe
    ::close(ends[1]);
    std::thread(::pause).detach();
    ::syscall(SYS_exit, 0);  // of this thread
  }
  ::close(ends[1]);
  const std::string stat = "/proc/" + std::to_string(parent) + "/stat";
  wait_until([&] { return text_of(stat).find(") Z ") != std::string::npos; });
  launch::kill_children_of(parent, kSoon);
  pollfd left{ends[0], POLLIN, 0};
  CHECK(::poll(&left, 1, 5000) == 1);
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  ::close(ends[0]);
}

TEST_CASE("SIGKILL of a worker takes its descendants along and restarts the group") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {"--nproc_per_node=2", "--max_restarts=1", "--shutdown-timeout=0"},
                            {"#0child", "#0daemon", "#0ignore=TERM", "#0wait", "print=again"}));
  ::kill(pid_after(job, "waiting", 2), SIGKILL);
  CHECK(job.wait_exit() == 0);
  job.wait_all_gone(kSoon);
  CHECK_THAT(job.out(), Contains("again"));
}

TEST_CASE("a failed job keeps to the shutdown timeout and leaves nothing behind") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {"--nproc_per_node=2", "--shutdown-timeout=0.05"},
                            {"child", "daemon", "ignore=TERM", "@1exit=3", "wait"}));
  CHECK(job.wait_exit() == 3);
  job.wait_all_gone(kSoon);
  CHECK(nothing_left(tmp));
}

TEST_CASE("what a successful worker leaves running is ended with the job") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {}, {"child", "daemon", "exit=0"}));
  CHECK(job.wait_exit() == 0);
  job.wait_all_gone(kSoon);
}

TEST_CASE("what cleans up after a failed worker is done before the restart") {
  const std::string helper = GENERATE("#0helper=end", "#0detached-helper=end");
  const TempFolder tmp;
  const auto job =
      run_to_end(stub_job(tmp, {"--max-restarts=1"}, {helper, "#0exit=3", "print=again"}));
  CHECK(job.exit == 0);
  const auto cleaned = job.out.find("helper cleaned up\n");
  REQUIRE(cleaned != std::string::npos);
  CHECK(job.out.find("again\n") > cleaned);
}

TEST_CASE("what outlives its worker is asked to end before it is killed") {
  const std::string helper = GENERATE("helper=TERM", "detached-helper=TERM", "@1helper=TERM");
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {"--nproc-per-node=2"}, {helper, "@0wait"}));
  if (helper[0] != '@') ::kill(pid_after(job, "waiting"), SIGKILL);
  job.wait_for("helper cleaned up");  // in the last case rank 0 still runs
  job.signal(SIGTERM);
  job.wait_exit();
  job.wait_all_gone(kSoon);
}

TEST_CASE("leftovers that only the end of others reveals have no time of their own") {
  const TempFolder tmp;
  const std::string up = tmp / "up";
  REQUIRE(::mkfifo(up.c_str(), 0600) == 0);
  auto options = stub_job(tmp, {}, {"ignore=TERM", "open=" + up, "wait"});
  // A worker that has ended, three shells in sessions of their own, each above the next, and the
  // program below these.
  const std::string shell = "trap '' TERM; setsid \"$@\"; :";
  Lines chain{"/bin/sh", "-c", "setsid \"$@\" & : <" + up, "sh"};
  for (int i = 0; i < 3; ++i) chain.insert(chain.end(), {"sh", "-c", shell, "sh"});
  options.argv.insert(options.argv.begin() + 1, chain.begin(), chain.end());
  ChildProgram job(options);
  job.wait_for("waiting");
  const auto began = std::chrono::steady_clock::now();
  CHECK(job.wait_exit() == 0);
  job.wait_all_gone(kSoon);
  // 2.5 s, SIGTERM, 1 s, SIGKILL; each in turn needs 14.
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(12));
}

TEST_CASE("a second signal kills at once and leaves nothing behind") {
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {"--nproc_per_node=2", "--shutdown-timeout=60"},
                            {"note=TERM", "note=INT", "child", "daemon", "wait"}));
  job.wait_for("waiting", 2);
  job.signal(SIGINT);
  job.wait_for("got SIGINT", 2);
  // Sooner, one from the same sender counts as a double of the first one.
  std::this_thread::sleep_for(std::chrono::milliseconds(120));
  job.signal(SIGINT);
  CHECK(job.wait_exit() == 128 + SIGINT);
  job.wait_all_gone(kSoon);
}

TEST_CASE("a process that ddp-run did not start is not touched") {
  const TempFolder tmp;
  ChildProgram job(in_shell(
      kEarlierChild,
      stub_job(tmp, {"--nproc_per_node=2", "--shutdown-timeout=0"}, {"@1exit=3", "wait"})));
  const pid_t other = pid_after(job, "other");
  CHECK(job.wait_exit() == 3);
  CHECK(::kill(other, 0) == 0);
  ::kill(other, SIGKILL);
  job.wait_all_gone();
}

TEST_CASE("SIGKILL of a ddp-run that had children before leaves nothing of the job behind") {
  const TempFolder tmp;
  ChildProgram job(in_shell(kEarlierChild, stub_job(tmp, {"--nproc_per_node=2"}, kStubborn)));
  const pid_t other = pid_after(job, "other");
  job.wait_for("waiting", 2);
  job.signal(SIGKILL);
  CHECK(job.wait_exit() == -SIGKILL);
  CHECK(::kill(other, SIGKILL) == 0);
  job.wait_all_gone(kSoon);
}

TEST_CASE("a child that ddp-run had before is reaped when it ends, as PID 1 of a container must") {
  const TempFolder tmp;
  ChildProgram job(in_shell(kEarlierChild, stub_job(tmp, {}, {"wait"})));
  const pid_t other = pid_after(job, "other");
  job.wait_for("waiting ");
  ::kill(other, SIGKILL);
  wait_until([&] { return ::kill(other, 0) != 0; });
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
}

TEST_CASE("without a /proc of its PID namespace ddp-run ends, and leaves nothing behind") {
#ifdef DDP_SANITIZED  // a sanitizer reads its memory map from /proc
  const std::string proc = "true";
#else
  const std::string proc = GENERATE("true", "mount -t tmpfs none /proc");  // another's; none
#endif
  const TempFolder tmp;
  const auto options =
      stub_job(tmp, {"--max-restarts=1"}, {"child", "daemon", "#0exit=3", "print=second round"});
  const Lines pids{"--pid", "--fork", "--kill-child"};
  if (run_to_end(in_namespace({.argv = {"mount", "-t", "tmpfs", "none", "/proc"}}, pids)).exit != 0)
    return say_skipped("no PID namespace to be had here");
  // kill -0 -1 finds any process but the shell, which is PID 1.
  const std::string script =
      proc + "; \"$@\"; echo code $?; kill -0 -1 2>/dev/null || echo nothing left";
  const Finished job = run_to_end(in_namespace(in_shell(script, options), pids));
  CHECK_THAT(job.out, Contains("second round\n") && Contains("code 0\nnothing left\n"));
}

}  // namespace
}  // namespace ddp::test
