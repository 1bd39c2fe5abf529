// What the guardian does aside, and what it and the agent take of memory.
#include "launcher/process/guardian.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>

#include "launcher/base/clock.h"
#include "launcher/base/system/descriptors.h"
#include "tests/launcher/ddp_run.h"
#include "tests/support/catch.h"

namespace ddp::launch {
namespace {

// As stderr.
class Redirected {
 public:
  explicit Redirected(int fd) { ::dup2(fd, STDERR_FILENO); }
  ~Redirected() { ::dup2(before_.get(), STDERR_FILENO); }
  Redirected(const Redirected&) = delete;
  Redirected& operator=(const Redirected&) = delete;

 private:
  const Descriptor before_{::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3)};
};

bool is_blocked(int signal) {
  sigset_t blocked;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  return ::sigismember(&blocked, signal) == 1;
}

// The number after `name` in a file of /proc/PID; 0 if there is none.
long number_of(pid_t pid, const std::string& file, const std::string& name) {
  std::ifstream stream("/proc/" + std::to_string(pid) + "/" + file);
  for (std::string word; stream >> word;) {
    long number = 0;
    if (word == name && stream >> number) return number;
  }
  return 0;
}

long memory_kib(pid_t pid) { return number_of(pid, "smaps_rollup", "Pss:"); }

// Each time that it sleeps, it has done all that it woke for.
long sleeps(pid_t pid) { return number_of(pid, "status", "voluntary_ctxt_switches:"); }

#ifndef DDP_SANITIZED
TEST_CASE("the processes of ddp-run take 3 MiB at most while its workers run", "[waits]") {
  const test::TempFolder tmp;
  test::ChildProgram job(test::stub_job(tmp, {"--rdzv-id=rest"}, {"parent", "wait"}));
  const pid_t agent = agent_of(job);
  job.wait_for("waiting ");
  // Between two of its sleeps the guardian has looked for the agent, every 3 s.
  const long slept = sleeps(job.pid());
  for (const auto end = Clock::now() + 4 * test::kSoon; Clock::now() < end;) {
    if (sleeps(job.pid()) >= slept + 2) break;
    ::poll(nullptr, 0, 10);
  }
  REQUIRE(sleeps(job.pid()) >= slept + 2);
  long kib = 0;
  for (const auto end = Clock::now() + test::kSoon; Clock::now() < end;) {
    kib = memory_kib(job.pid()) + memory_kib(agent);
    if (kib <= 3 * 1024) break;
  }
  CHECK(kib <= 3 * 1024);
  CHECK(kib > 0);
  job.signal(SIGTERM);
  CHECK(job.wait_exit() == 128 + SIGTERM);
}
#endif

TEST_CASE("a process waits itself for the reader of a pipe, and leaves none behind that does") {
  const PipeEnds pipe = open_pipe("test");
  const pid_t self = ::getpid();
  const bool by_this_process = [&] {
    const Redirected redirected(pipe.write.get());
    return aside([self] { return ::getpid() == self; }, STDERR_FILENO);
  }();
  CHECK(by_this_process);
}

TEST_CASE("what is done aside holds nothing but its file, and a signal can end it") {
  const test::TempFolder folder;
  const PipeEnds pipe = open_pipe("test");
  const Descriptor file(
      ::open((folder / "err").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR));
  sigset_t term, before;
  ::sigemptyset(&term);
  ::sigaddset(&term, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &term, &before);
  const pid_t self = ::getpid();
  const auto holds_nothing = [&] {
    return ::getpid() != self && !is_blocked(SIGTERM) && ::fcntl(pipe.write.get(), F_GETFD) < 0 &&
           ::fcntl(STDOUT_FILENO, F_GETFD) < 0 && ::write(STDERR_FILENO, "x", 1) == 1;
  };
  const bool held_nothing = [&] {
    const Redirected redirected(file.get());
    return aside(holds_nothing, STDERR_FILENO);
  }();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  CHECK(held_nothing);
}

TEST_CASE("what is done aside and sleeps for longer than a second is killed", "[waits]") {
  CHECK_FALSE(aside([] { return ::poll(nullptr, 0, 30'000) == 0; }));
  int status = 0;
  REQUIRE(::waitpid(-1, &status, 0) > 0);
  CHECK(WIFSIGNALED(status));
}

}  // namespace
}  // namespace ddp::launch
