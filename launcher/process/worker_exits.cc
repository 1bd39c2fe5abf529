// How workers end: reaps them, and holds each exit back until its error file is read.
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include <utility>

#include "launcher/process/worker_processes.h"

namespace ddp::launch {
namespace {

// For RLIMIT_CPU (ulimit -t): the kernel enforces the limit by ticks, the clock is exact.
constexpr double kTolerance = 0.5;

// Excludes its children, which have limits of their own.
double own_cpu_seconds(pid_t pid) {
  clockid_t clock{};
  timespec used{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &used) != 0) return 0;
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

// Why `signal` killed this child, which is not reaped yet, if that is the reason; else empty.
std::string cpu_limit_verdict(pid_t pid, int signal) {
  rlimit limit{};
  if ((signal != SIGKILL && signal != SIGXCPU) || ::prlimit(pid, RLIMIT_CPU, nullptr, &limit) != 0)
    return "";
  // With SIGXCPU the kernel adds a second to the soft limit.
  const rlim_t seconds = signal == SIGKILL                 ? limit.rlim_max
                         : limit.rlim_cur == RLIM_INFINITY ? RLIM_INFINITY
                                                           : limit.rlim_cur - 1;
  if (seconds == RLIM_INFINITY || own_cpu_seconds(pid) + kTolerance < static_cast<double>(seconds))
    return "";
  return fmt::format("CPU time limit: the kernel ended it after {} s (ulimit -t)", seconds);
}

// How long the exit of a worker waits for the disk of its error file.
constexpr auto kDiskPatience = std::chrono::seconds(3);

double cpu_seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

}  // namespace

void WorkerProcesses::reap(std::vector<Event>& events) {
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    const ExitStatus exit = exit_status_of(info.si_code, info.si_status);
    if (info.si_pid == store_.pid()) {
      note_loss(store_.take_exit(), events);
      continue;
    }
    if (standby_.take_exit(info.si_pid)) continue;
    if (auto end = check_.take_exit(info.si_pid, exit)) {
      ::wait4(info.si_pid, nullptr, WNOHANG, nullptr);
      events.push_back(
          {.kind = Event::Kind::kCheckEnded, .exit = end->exit, .cause = std::move(end->said)});
      continue;
    }
    const auto worker = running_.find(info.si_pid);
    const bool is_worker = worker != running_.end();
    const int local_rank = is_worker ? worker->second : 0;
    if (is_worker) running_.erase(worker);
    held_signals_.worker_ended(info.si_pid);
    std::string cause = cpu_limit_verdict(info.si_pid, exit.signal);
    rusage usage{};
    ::wait4(info.si_pid, nullptr, WNOHANG, &usage);
    if (is_worker) leftovers_.worker_ended(info.si_pid, running_.empty());
    if (const auto failed = stack_dumper_.take_exit(info.si_pid, exit.ok()))
      events.push_back({.kind = Event::Kind::kStacksDumped, .without_stacks = *failed});
    if (!is_worker) continue;
    Event event{.kind = Event::Kind::kWorkerExited, .pid = info.si_pid, .exit = exit};
    event.usage = {cpu_seconds(usage.ru_utime) + cpu_seconds(usage.ru_stime), usage.ru_maxrss};
    if (event.exit.signal == SIGKILL && cause.empty())
      cause = oom_verdict(oom_before_, OomCounts::read());
    event.cause = std::move(cause);
    if (const auto timer = expired_.find(info.si_pid); timer != expired_.end())
      event.cause = timer->second;
    hold_back(std::move(event), local_rank);
  }
}

void WorkerProcesses::note_loss(const std::optional<StoreLoss>& loss, std::vector<Event>& events) {
  if (!loss) return;
  Event event{.kind = Event::Kind::kStoreLost, .exit = loss->exit, .cause = loss->what};
  if (exits_.empty())
    events.push_back(std::move(event));
  else
    exits_.push_back({std::move(event), exits_.back().until});
}

// Until the thread of the log files has read what a report needs of them: this one might have to
// wait for the disk.
void WorkerProcesses::hold_back(Event exit, int local_rank) {
  exit.time = unix_time();
  exit.error_file = ErrorFile::to_be_read(error_files_[local_rank]);
  pump_.worker_ended(local_rank);
  if (const ErrorFile& file = exit.error_file; !file.is_read())
    pump_.open_file(file.path, [file](std::string_view) { return file.read(), 0; })("");
  exits_.push_back({std::move(exit), Clock::now() + kDiskPatience});
}

void WorkerProcesses::report_exits(std::vector<Event>& events) {
  while (!exits_.empty() &&
         (exits_.front().event.error_file.is_read() || turn_began_ >= exits_.front().until)) {
    events.push_back(std::move(exits_.front().event));
    exits_.pop_front();
  }
}

}  // namespace ddp::launch
