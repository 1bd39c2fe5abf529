// A disk that blocks: the thread of ddp-run that writes files is stopped by a debugger, or a file
// system is frozen, which takes root.
#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>

#include "launcher/base/system/descriptors.h"
#include "tests/launcher/ddp_run.h"
#include "tests/support/catch.h"
#include "tests/support/skip.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Lines = std::vector<std::string>;

struct BlockedJob {
  TempFolder tmp, logs;
  std::string file = logs / "latest/attempt_0/0/stdout.log";
  ChildOptions options = stub_job(tmp, {"--tee=3", "--log-dir=" + logs.path()},
                                  {"note=USR1", "trap-exit=0", "parent", "wait"});
  std::unique_ptr<ChildProgram> job;
  pid_t agent = 0;
  pid_t thread = 0;

  ~BlockedJob() { resume(); }

  std::string log() const { return text_of(file); }

  // Stops the thread in which the agent writes files. Returns false if the system does not let it.
  bool block() {
    job = std::make_unique<ChildProgram>(options);
    wait_until([this] { return log().find("waiting ") != std::string::npos; });
    const std::string text = log();
    agent = std::stoi(text.substr(text.find("parent ") + 7));
    const std::string tasks = "/proc/" + std::to_string(agent) + "/task";
    for (const auto& task : std::filesystem::directory_iterator(tasks)) {
      if (text_of(task.path() / "comm") == "ddp-files\n")
        thread = std::stoi(task.path().filename());
    }
    REQUIRE(thread != 0);
    // Not while it holds a lock: once it has nothing to do.
    const std::string stat = tasks + "/" + std::to_string(thread) + "/stat";
    wait_until([&] { return text_of(stat).find(") S ") != std::string::npos; });
    if (::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) return thread = 0, false;
    REQUIRE(::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) == 0);
    REQUIRE(::waitpid(thread, nullptr, __WALL) == thread);
    return true;
  }

  void resume() {
    if (thread != 0 && ::ptrace(PTRACE_DETACH, thread, nullptr, nullptr) != 0)
      ::waitpid(thread, nullptr, __WALL);
    thread = 0;
  }
};

void say_no_trace() { say_skipped("ptrace: this system does not let a process trace its child"); }

TEST_CASE("while the log files' disk blocks, output is shown and signals are answered at once") {
  BlockedJob blocked;
  if (!blocked.block()) return say_no_trace();
  blocked.job->signal(SIGUSR1);
  blocked.job->wait_for("[default0]:got SIGUSR1");
  blocked.job->signal(SIGTERM);
  blocked.job->wait_for("[default0]:got SIGTERM");
  blocked.job->wait_for("SIGTERM: forwarded to 1 worker");
  CHECK_THAT(blocked.log(), !Contains("got SIG"));
  blocked.resume();
  CHECK(blocked.job->wait_exit() == 128 + SIGTERM);
  CHECK_THAT(blocked.log(), Contains("got SIGUSR1\ngot SIGTERM\n"));
}

TEST_CASE("workers whose output waits for a blocked disk are named, and when they go on",
          "[waits]") {
  BlockedJob blocked;
  auto& steps = blocked.options.argv;
  steps.erase(steps.end() - 4, steps.end());
  steps.insert(steps.end(), {"parent", "print=waiting ", "hold=USR1", "err-for-ever"});
  if (!blocked.block()) return say_no_trace();
  blocked.job->signal(SIGUSR1);
  const std::string line = blocked.job->wait_for("must wait as well");
  CHECK_THAT(line, Catch::StartsWith("ddp-run: waiting for '" + blocked.logs.path()) &&
                       Contains(" bytes of the log files are not written yet, and local rank 0, "));
  blocked.resume();
  blocked.job->wait_for("ddp-run: the log files are written again");
  blocked.job->signal(SIGKILL);
  blocked.job->wait_all_gone();
}

TEST_CASE("a failure is reported though the disk of its error file blocks, whose words come later",
          "[waits]") {
  BlockedJob blocked;
  auto& steps = blocked.options.argv;
  steps.insert(steps.begin() + 1, "--events=console");
  steps.erase(steps.end() - 4, steps.end());
  steps.insert(steps.end(), {"parent", "print=waiting ", "hold=USR1",
                             "error-file={\"message\":\"out of paper\"}", "exit=3"});
  if (!blocked.block()) return say_no_trace();
  blocked.job->signal(SIGUSR1);
  CHECK_THAT(blocked.job->wait_for("\"FAILED\""), Contains("its disk does not answer"));
  blocked.resume();
  CHECK(blocked.job->wait_exit() == 3);
  CHECK_THAT(blocked.job->err(), Contains("out of paper"));
}

TEST_CASE("a disk that stays blocked ends with a second signal, and what is lost is said",
          "[waits]") {
  BlockedJob blocked;
  if (!blocked.block()) return say_no_trace();
  blocked.job->signal(SIGUSR1);
  blocked.job->wait_for("[default0]:got SIGUSR1");
  blocked.job->signal(SIGTERM);
  blocked.job->wait_for("24 bytes of the log files are not written yet");
  const auto asked = std::chrono::steady_clock::now();
  ::kill(blocked.agent, SIGTERM);  // one request, as two signals
  blocked.job->signal(SIGTERM);
  // The thread cannot die, as in a write to a frozen disk.
  CHECK(blocked.job->wait_exit() == 128 + SIGTERM);
  CHECK(std::chrono::steady_clock::now() - asked > std::chrono::seconds(5));
  CHECK_THAT(blocked.job->err(), Contains("the last 24 bytes of the log files are lost") &&
                                     Contains("cannot exit: its disk blocks") &&
                                     !Contains("could not be killed"));
}

TEST_CASE("an agent that is killed while its disk blocks is reported, and its workers end",
          "[waits]") {
  BlockedJob blocked;
  if (!blocked.block()) return say_no_trace();
  ::kill(blocked.agent, SIGKILL);
  CHECK(blocked.job->wait_exit() == 128 + SIGKILL);
  CHECK_THAT(blocked.job->err(), Contains("cannot exit: its disk blocks"));
}

// A file system of its own, in a mount namespace of this process. Frozen, it would outlive a
// process that is killed, and everything that writes to it forever: a process in another session,
// which is nobody's child, thaws it then.
class FrozenDisk {
 public:
  FrozenDisk() {
    const std::string image = folder_ / "image";
    const std::string make = "mkdir " + path() + " && truncate -s 8M " + image +
                             " && mkfs.ext4 -q " + image + " && mount -o loop " + image + " " +
                             path() + " 2>/dev/null";
    mounted_ = ::geteuid() == 0 && ::unshare(CLONE_NEWNS) == 0 &&
               ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
               std::system(make.c_str()) == 0;
    if (!mounted_) return;
    root_ = launch::Descriptor(::open(path().c_str(), O_RDONLY | O_CLOEXEC));
    launch::PipeEnds life = launch::open_pipe("watch over the test");
    const pid_t between = ::fork();
    if (between == 0) thaw_after(std::move(life));
    life_ = std::move(life.write);
    ::waitpid(between, nullptr, 0);
  }
  ~FrozenDisk() {
    life_.reset();
    root_.reset();
    if (mounted_) ::umount2(path().c_str(), MNT_DETACH);
  }

  bool is_there() const { return mounted_; }
  std::string path() const { return folder_ / "disk"; }
  /// Until thaw() or the guard's end, which must come before that of a program that may write
  /// there.
  struct Guard {
    FrozenDisk& disk;
    ~Guard() { disk.thaw(); }
  };
  [[nodiscard]] Guard freeze() {
    REQUIRE(::ioctl(root_.get(), FIFREEZE, 0) == 0);
    return {*this};
  }
  void thaw() { ::ioctl(root_.get(), FITHAW, 0); }

 private:
  [[noreturn]] void thaw_after(launch::PipeEnds life) {
    ::setsid();
    life.write.reset();
    if (::fork() != 0) ::_exit(0);
    char end = 0;
    while (::read(life.read.get(), &end, 1) != 0) {
    }
    thaw();
    ::_exit(0);
  }

  TempFolder folder_;
  bool mounted_ = false;
  launch::Descriptor root_;
  launch::Descriptor life_;  // closed with this process
};

[[noreturn]] void freeze_and_wait(int ready) {
  FrozenDisk disk;
  if (!disk.is_there()) ::_exit(::write(ready, "", 1) == 1 ? 0 : 1);
  const auto frozen = disk.freeze();
  const std::string path = disk.path();
  if (::write(ready, path.c_str(), path.size() + 1) < 0) ::_exit(1);
  for (;;) ::pause();
}

TEST_CASE("a frozen disk thaws when the test that has frozen it is killed", "[waits]") {
  launch::PipeEnds ready = launch::open_pipe("wait for the disk");
  const pid_t child = ::fork();
  if (child == 0) freeze_and_wait(ready.write.get());
  ready.write.reset();
  std::string path(4096, '\0');
  REQUIRE(::read(ready.read.get(), path.data(), path.size()) > 0);
  path = path.c_str();
  const std::string seen = "/proc/" + std::to_string(child) + "/root" + path;
  const launch::Descriptor root(::open(seen.c_str(), O_RDONLY | O_CLOEXEC));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  if (path.empty()) return say_skipped("no loop-mounted file system to be had here");
  // It can be frozen again only once it is thawed.
  wait_until([&] { return ::ioctl(root.get(), FIFREEZE, 0) == 0; });
  CHECK(::ioctl(root.get(), FITHAW, 0) == 0);
  std::filesystem::remove_all(std::filesystem::path(path).parent_path());
}

/// Releases the job's held worker, on a disk that is frozen by then.
auto go_on_frozen(FrozenDisk& disk, ChildProgram& job) {
  job.wait_for("holding");
  auto frozen = disk.freeze();
  job.signal(SIGUSR1);
  return frozen;
}

TEST_CASE("a stdout on a frozen disk blocks no worker, and the end waits for it with one line",
          "[waits]") {
  FrozenDisk disk;
  if (!disk.is_there()) return say_skipped("no loop-mounted file system to be had here");
  const TempFolder tmp;
  const std::string out = disk.path() + "/out", err = tmp / "err";
  ChildProgram job(
      in_shell("exec \"$@\" >" + out + " 2>" + err,
               stub_job(tmp, {}, {"hold=USR1", "beat=timeout=2", "print=while frozen"})));
  wait_until([&] { return text_of(out).find("holding") != std::string::npos; });
  const auto frozen = disk.freeze();
  job.signal(SIGUSR1);
  wait_until([&] { return text_of(err).find('\n') != std::string::npos; });
  CHECK(text_of(err) ==
        "ddp-run: waiting for 'stdout': 13 bytes of the console are not written yet; a signal ends "
        "the wait\n");
  disk.thaw();
  CHECK(job.wait_exit() == 0);
  CHECK_THAT(text_of(out), Catch::EndsWith("\nwhile frozen\n"));
  CHECK(lines_of(text_of(err)).size() == 1);
}

/// Its worker sends no more heartbeats after SIGUSR1; the logs are on `disk`.
ChildOptions hanging_job(const TempFolder& tmp, const FrozenDisk& disk) {
  return stub_job(tmp, {"--log-dir=" + disk.path()}, {"hold=USR1", "beat=timeout=0.1", "wait"});
}

TEST_CASE("a hang whose log folder is on a frozen disk is reported at once, its stacks later",
          "[waits]") {
  FrozenDisk disk;
  if (!disk.is_there()) return say_skipped("no loop-mounted file system to be had here");
  const TempFolder tmp;
  auto options = hanging_job(tmp, disk);
  options.set["PATH"] = tmp.path();
  ChildProgram job(options);
  const auto frozen = go_on_frozen(disk, job);
  job.wait_for("rank 0 (local rank 0, pid ");
  const std::string file = disk.path() + "/latest/attempt_0/0/stacks.txt";
  const std::string line = job.wait_for(" of the log files are not written yet");
  CHECK_THAT(line, Contains("waiting for '") && Contains("/attempt_0/0/stacks.txt'"));
  CHECK(text_of(file).empty());
  disk.thaw();
  CHECK(job.wait_exit() == 124);
  CHECK_THAT(text_of(file), Catch::StartsWith("pid ") && Contains("thread "));
}

TEST_CASE("ddp-run answers while what a worker has left behind cannot be killed", "[waits]") {
  FrozenDisk disk;
  if (!disk.is_there()) return say_skipped("no loop-mounted file system to be had here");
  const TempFolder tmp;
  const std::string next_round = tmp / "next";
  auto options = stub_job(tmp, {"--max-restarts=1", "--no-python"}, {});
  options.argv.back() = "/bin/sh";
  options.argv.insert(
      options.argv.end(),
      {"-c", "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && { : > " + next_round + "; exec sleep 600; };" +
                 "setsid sh -c ': > \"$0\"' " + disk.path() +
                 "/file & until grep -q State:.D /proc/$!/status; do :; done; exit 3"});
  const auto frozen = disk.freeze();
  ChildProgram job(options);
  const ChildOptions status{.argv = {kDdpRun, "--status=" + std::to_string(job.pid())}};
  while (run_to_end(status).exit != 0) {
  }  // no socket yet
  while (!std::filesystem::exists(next_round)) {
    const auto asked = std::chrono::steady_clock::now();
    run_to_end(status);
    REQUIRE(std::chrono::steady_clock::now() - asked < std::chrono::seconds(3));
  }
  disk.thaw();
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
}

TEST_CASE("a debugger that cannot be killed, as its file is on a frozen disk, is named",
          "[waits]") {
  FrozenDisk disk;
  if (!disk.is_there()) return say_skipped("no loop-mounted file system to be had here");
  const TempFolder tmp;
  auto options = hanging_job(tmp, disk);
  tmp.write("gdb", "#!/bin/sh\n", true);
  options.set["PATH"] = tmp.path();
  ChildProgram job(options);
  const auto frozen = go_on_frozen(disk, job);
  job.wait_for("a signal ends the wait");
  disk.thaw();
  CHECK(job.wait_exit() == 124);
  CHECK_THAT(job.err(), Contains(" (gdb, state D) could not be killed"));
}

TEST_CASE("a signal ends ddp-run though stdout and stderr are on a frozen disk", "[waits]") {
  FrozenDisk disk;
  if (!disk.is_there()) return say_skipped("no loop-mounted file system to be had here");
  const TempFolder tmp;
  const std::string out = disk.path() + "/out", result = tmp / "result.json";
  ChildProgram job(
      in_shell("exec \"$@\" >" + out + " 2>&1",
               stub_job(tmp, {"--result-json=" + result}, {"hold=USR1", "print=x", "exit=3"})));
  wait_until([&] { return text_of(out).find("holding") != std::string::npos; });
  const auto frozen = disk.freeze();
  job.signal(SIGUSR1);
  wait_for_file(result);  // the workers have ended, and ddp-run waits for the disk
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 3);
}

TEST_CASE("a restart on a frozen disk waits for it, and a signal ends the wait", "[waits]") {
  FrozenDisk disk;
  if (!disk.is_there()) return say_skipped("no loop-mounted file system to be had here");
  const bool interrupted = GENERATE(false, true);
  const TempFolder tmp;
  ChildProgram job(stub_job(tmp, {"--log-dir=" + disk.path(), "--max-restarts=1"},
                            {"#0hold=USR1", "#0exit=3", "print=again"}));
  const auto frozen = go_on_frozen(disk, job);
  job.wait_for("restart 1 of 1");
  if (interrupted) {
    job.signal(SIGTERM);
    job.wait_for("a signal ends the wait");
  }
  disk.thaw();
  CHECK(job.wait_exit() == (interrupted ? 128 + SIGTERM : 0));
  CHECK((job.out().find("again") == std::string::npos) == interrupted);
}

TEST_CASE("a result on a frozen disk is waited for with one line, and written", "[waits]") {
  FrozenDisk disk;
  if (!disk.is_there()) return say_skipped("no loop-mounted file system to be had here");
  const TempFolder tmp;
  const std::string result = disk.path() + "/result.json";
  ChildProgram job(stub_job(tmp, {"--result-json=" + result}, {"hold=USR1"}));
  const auto frozen = go_on_frozen(disk, job);
  CHECK(job.wait_for("a signal ends the wait") ==
        "ddp-run: waiting for '" + result + "'; a signal ends the wait");
  disk.thaw();
  CHECK(job.wait_exit() == 0);
  CHECK_THAT(text_of(result), Contains("\"exit_code\": 0"));
}

TEST_CASE("a job whose TMPDIR or --log-dir is on a frozen disk says at its end what it waits for",
          "[waits]") {
  FrozenDisk disk;
  if (!disk.is_there()) return say_skipped("no loop-mounted file system to be had here");
  const bool logs = GENERATE(false, true);
  const TempFolder tmp;
  auto options = stub_job(tmp, logs ? Lines{"--log-dir=" + disk.path()} : Lines{}, {"hold=USR1"});
  if (!logs) options.set["TMPDIR"] = disk.path();
  ChildProgram job(options);
  const auto frozen = go_on_frozen(disk, job);
  CHECK_THAT(job.wait_for("a signal ends the wait"),
             Catch::StartsWith("ddp-run: waiting for '" + disk.path() + "/"));
  disk.thaw();
  CHECK(job.wait_exit() == 0);
  if (logs) CHECK_THAT(text_of(disk.path() + "/latest/result.json"), Contains("\"exit_code\": 0"));
}

TEST_CASE("a signal ends the wait for logs, which are kept with the code of the job", "[waits]") {
  FrozenDisk disk;
  if (!disk.is_there()) return say_skipped("no loop-mounted file system to be had here");
  const TempFolder tmp;
  auto options = stub_job(tmp, {"--tee=3"}, {"hold=USR1", "print=x", "exit=3"});
  options.set["TMPDIR"] = disk.path();
  ChildProgram job(options);
  const auto frozen = go_on_frozen(disk, job);
  job.wait_for("bytes of the log files are not written yet");
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 3);
  CHECK_THAT(job.err(), Contains("bytes of the log files are lost") &&
                            Contains("logs      : " + disk.path() + "/ddp-run_"));
  disk.thaw();
  const std::string text = job.err(), label = "logs      : ";
  const auto at = text.find(label) + label.size();
  const std::string run = text.substr(at, text.find('\n', at) - at);
  wait_until([&] { return std::filesystem::exists(run + "/logs_kept"); });
  CHECK(std::filesystem::exists(run + "/attempt_0/0/stdout.log"));
  wait_until([&] { return std::filesystem::exists(run + "/result.json"); });
  CHECK_THAT(text_of(run + "/result.json"),
             Contains("\"exit_code\": 3") && Contains("\"local_rank\": 0"));
}

TEST_CASE("a job that succeeds but loses its logs fails, and its result says so", "[waits]") {
  FrozenDisk disk;
  if (!disk.is_there()) return say_skipped("no loop-mounted file system to be had here");
  const TempFolder tmp;
  const std::string result = tmp / "result.json";
  auto options = stub_job(tmp, {"--tee=3", "--result-json=" + result}, {"hold=USR1", "print=x"});
  options.set["TMPDIR"] = disk.path();
  ChildProgram job(options);
  const auto frozen = go_on_frozen(disk, job);
  job.wait_for("bytes of the log files are not written yet");
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 1);
  CHECK_THAT(text_of(result), Contains("\"exit_code\": 1"));
}

}  // namespace
}  // namespace ddp::test
