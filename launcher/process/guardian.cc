#include "launcher/process/guardian.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/errors.h"
#include "launcher/base/messages.h"
#include "launcher/base/signal_names.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/idle_memory.h"
#include "launcher/base/system/proc_files.h"
#include "launcher/base/worker.h"
#include "launcher/process/process_tree.h"
#include "launcher/process/stop_requests.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

using Agent = std::function<int(int)>;

constexpr auto kPatience = std::chrono::seconds(5);
// On the second request the agent kills at once; an agent still alive at the third is stuck.
constexpr int kMostRequests = 3;
// No SIGCHLD reports a main thread that has died while another one cannot.
constexpr auto kLook = std::chrono::seconds(3);
constexpr auto kLastChance = std::chrono::seconds(1);

pid_t fork_or_throw() {
  const pid_t pid = ::fork();
  if (pid < 0)
    throw LaunchError(kExitFailed, "cannot start the agent process: " + error_text(errno));
  return pid;
}

// The wait status of `child` if it is dead. Other children may exist: from before the exec of
// ddp-run, and, as PID 1 of a container, orphans.
std::optional<int> reap_until(pid_t child) {
  int status = 0;
  for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    if (pid == child) return status;
  }
  return std::nullopt;
}

// Its main thread has ended, but another one is in uninterruptible sleep: in a write to a frozen
// disk.
bool cannot_exit(pid_t child) { return read_stat(process_folder(child)).state == 'Z'; }

// Forwards signals until the child dies; returns its wait status, or nothing if it ignored
// `patience` requests or cannot exit. SIGTSTP (Ctrl-Z) also stops this process, so that
// the shell regains control; SIGCONT wakes it.
std::optional<int> wait_and_forward(const SignalMailbox& signals, pid_t child, int patience) {
  release_idle_memory();
  StopRequests requests;
  auto deadline = Clock::now() + kLook;
  bool may_be_stuck = false;
  for (;;) {
    const auto received = signals.next(deadline);
    if (!received) {
      const bool is_stuck = cannot_exit(child);
      if (requests.count() >= patience || (is_stuck && may_be_stuck)) return std::nullopt;
      may_be_stuck = is_stuck;
      deadline = Clock::now() + (is_stuck ? kLastChance : kLook);
      release_idle_memory();  // the look has mapped pages again
      continue;
    }
    const auto [signal, origin, was_pending] = *received;
    if (!was_pending) requests.nothing_pending();
    if (signal == SIGCHLD) {
      if (const auto status = reap_until(child)) return status;
      continue;
    }
    const bool ends_job = signals.ends_job(signal);
    const bool counts = ends_job && requests.add(origin, Clock::now());
    if (counts || !ends_job) pass_on(child, signal, requests.count());
    if (counts && requests.count() > 1 && requests.count() <= patience)
      deadline = Clock::now() + kLastChance;
    if (signal == SIGTSTP && !ends_job) ::raise(SIGSTOP);
  }
}

// Not by this process: a disk that blocks may be that of stderr.
void report(const std::string& end, const std::vector<std::string>& survivors) {
  const auto print = [&] {
    say_error(end);
    for (const auto& survivor : survivors) say_error(survivor + " could not be killed");
    return true;
  };
  aside(print, STDERR_FILENO);
}

// An agent in uninterruptible sleep, e.g. on a dead file server, survives even SIGKILL; its workers
// must not.
int end_stuck(pid_t agent) {
  const ProcessStat stat = read_stat(process_folder(agent));
  ::kill(agent, SIGKILL);
  kill_children_of(agent, kPatience);
  kill_descendants(kShortPatience);  // an agent that can die leaves orphans
  const auto survivors = kill_descendants(kPatience, {agent});
  const bool has_ended = stat.state == 'Z';
  report(
      has_ended
          ? fmt::format("ddp-run's agent process (pid {}) cannot exit: its disk blocks", agent)
          : fmt::format("ddp-run's agent process (pid {}, state {}) did not exit after {} signals; "
                        "it and everything it started were killed",
                        agent, stat.state, kMostRequests),
      survivors);
  if (!has_ended) return kExitSignalBase + SIGKILL;
  return std::max(exit_code_of(stat.wait_status), kExitFailed);  // it has lost output
}

int guard(const SignalMailbox& signals, pid_t agent) {
  const auto status = wait_and_forward(signals, agent, kMostRequests);
  if (!status) return end_stuck(agent);
  // Anything that an agent left behind after a normal exit has had its grace period.
  const auto survivors =
      kill_descendants(WIFEXITED(*status) ? Clock::duration(kShortPatience) : kPatience);
  if (WIFSIGNALED(*status)) {
    // One that exited has reported the survivors.
    report(fmt::format(
               "ddp-run's agent process (pid {}) was killed by {}; its workers were killed as well",
               agent, signal_name(WTERMSIG(*status))),
           survivors);
  }
  return exit_code_of(*status);
}

int start_and_guard(const SignalMailbox& signals, const Agent& agent) {
  become_subreaper();
  PipeEnds ends = open_pipe("start the agent process");
  const pid_t pid = fork_or_throw();
  if (pid == 0) {
    ends.write.reset();
    ::setsid();
    ::prctl(PR_SET_NAME, "ddp-agent");
    become_subreaper();
    std::exit(agent(ends.read.get()));
  }
  ends.read.reset();
  return guard(signals, pid);  // ends.write stays open until the agent has ended
}

// A program may fork children and then exec ddp-run: they are not ours to kill, so the guardian is
// a fresh process without children, and this one only waits for it.
int guard_from_a_fresh_process(const SignalMailbox& signals, const Agent& agent) {
  const pid_t parent = ::getpid();
  const pid_t pid = fork_or_throw();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) std::exit(kExitFailed);
    std::exit(start_and_guard(signals, agent));
  }
  return exit_code_of(*wait_and_forward(signals, pid, INT_MAX));  // the guardian itself gives up
}

bool is_regular(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

// It may outlive this process: it holds nothing of other programs, and a signal can end it.
[[noreturn]] void work_aside(const std::function<bool()>& write, int stream) noexcept {
  ::setsid();
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fd != stream) ::close(fd);
  }
  close_all_from(STDERR_FILENO + 1);
  sigset_t none;
  ::sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
  ::_exit(write() ? kExitDone : kExitFailed);
}

}  // namespace

bool aside(const std::function<bool()>& write, int stream) {
  const pid_t pid = stream < 0 || is_regular(stream) ? ::fork() : -1;
  if (pid < 0) return write();
  if (pid == 0) work_aside(write, stream);
  const auto deadline = Clock::now() + kLastChance;
  int status = 0;
  pid_t ended = 0;
  while ((ended = ::waitpid(pid, &status, WNOHANG)) == 0 && Clock::now() < deadline)
    ::poll(nullptr, 0, 1);
  // In uninterruptible sleep it writes once its disk answers.
  if (ended == 0 && read_stat(process_folder(pid)).state != 'D') ::kill(pid, SIGKILL);
  return ended == pid && exit_code_of(status) == kExitDone;
}

int run_guarded(const SignalMailbox& signals, const Agent& agent) {
  return has_children() ? guard_from_a_fresh_process(signals, agent)
                        : start_and_guard(signals, agent);
}

}  // namespace ddp::launch
