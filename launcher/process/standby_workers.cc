#include "launcher/process/standby_workers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/proc_files.h"
#include "launcher/base/text.h"
#include "launcher/base/worker.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

// Before one that died is replaced; doubles.
constexpr auto kFirstPause = std::chrono::milliseconds(250);

// Tries it in a thread, as each thread has its own priority.
bool may_raise_priority() {
  bool may = false;
  std::thread([&may] {
    const int before = ::getpriority(PRIO_PROCESS, 0);
    may = ::setpriority(PRIO_PROCESS, 0, before + 1) == 0 &&
          ::setpriority(PRIO_PROCESS, 0, before) == 0;
  }).join();
  return may;
}

// Returns the variables that the worker's environment adds to the standby worker's; empty if the
// two do not fit.
std::string handover(const WorkerSpec& standby, const WorkerSpec& worker) {
  std::string text;
  std::size_t shared = 0;
  for (const auto& [name, value] : worker.environment) {
    const auto known = standby.environment.find(name);
    if (known != standby.environment.end()) ++shared;
    if (known == standby.environment.end() || known->second != value)
      text.append(name).append("=").append(value).push_back('\0');
  }
  const bool fits = shared + 1 == standby.environment.size() &&  // all but DDP_SPARE_FD
                    text.size() <= static_cast<std::size_t>(kLongestHandover) &&
                    standby.command.argv == worker.command.argv && standby.cpus == worker.cpus;
  return fits ? text : "";
}

}  // namespace

StandbyWorkers::StandbyWorkers(std::function<void(const std::string&)> note,
                               bool keep_hangup_ignored)
    : note_(std::move(note)), keep_hangup_ignored_(keep_hangup_ignored) {}

StandbyWorkers::~StandbyWorkers() { end(); }

void StandbyWorkers::keep(const std::vector<WorkerSpec>& specs) {
  end();
  const bool low_priority = may_raise_priority();
  for (const WorkerSpec& spec : specs) {
    Standby& standby = standby_[spec.local_rank];
    standby.spec = spec;
    standby.spec.low_priority = low_priority;
    start(standby);
  }
}

void StandbyWorkers::end() {
  for (auto& [local_rank, standby] : standby_) kill(standby);
  standby_.clear();
}

// It stays a child, to be reaped like any other.
void StandbyWorkers::kill(Standby& standby) {
  standby.socket.reset();
  if (standby.pid == 0) return;
  if (::kill(-standby.pid, SIGKILL) != 0) ::kill(standby.pid, SIGKILL);
}

void StandbyWorkers::start(Standby& standby) {
  auto [ours, theirs] = socket_pair();
  if (ours.get() < 0) return died(standby, error_text(errno));
  standby.socket = std::move(ours);
  standby.ready = false;
  standby.spec.kept_descriptor = theirs.get();
  standby.spec.environment[kSpareFd] = std::to_string(theirs.get());
  try {
    const Descriptor nowhere = open_null_device(O_RDWR);
    PendingSpawn pending = begin_spawn(standby.spec, {nowhere.get(), nowhere.get(), nowhere.get()},
                                       keep_hangup_ignored_);
    standby.pid = pending.pid;
    finish_spawn(pending);  // if it fails, the process exits
  } catch (const LaunchError& error) {
    died(standby, error.what());
  }
}

void StandbyWorkers::died(Standby& standby, const std::string& how) {
  standby.socket.reset();
  standby.pid = 0;
  standby.ready = false;
  standby.due = Clock::now() + kFirstPause * (1 << standby.deaths);
  if (++standby.deaths < kMaxDeaths) return;
  note_(
      fmt::format("the standby worker of local rank {} exited {} times before it was needed ({}); "
                  "this round continues without it",
                  standby.spec.local_rank, standby.deaths, how));
}

std::optional<pid_t> StandbyWorkers::hand_over(const WorkerSpec& worker, const WorkerStdio& stdio) {
  const auto found = standby_.find(worker.local_rank);
  if (found == standby_.end()) return std::nullopt;
  Standby standby = std::move(found->second);
  standby_.erase(found);
  if (standby.pid != 0) listen(standby);
  // Before anything else and for all its threads: it continues at once.
  if (standby.ready && standby.spec.low_priority)
    ::setpriority(PRIO_PGRP, static_cast<id_t>(standby.pid), ::getpriority(PRIO_PROCESS, 0));
  const std::string text = standby.ready ? handover(standby.spec, worker) : "";
  if (text.empty() || !pass_descriptors(standby.socket.get(),
                                        {stdio.in >= 0 ? stdio.in : STDIN_FILENO,
                                         stdio.out >= 0 ? stdio.out : STDOUT_FILENO,
                                         stdio.err >= 0 ? stdio.err : STDERR_FILENO},
                                        text)) {
    kill(standby);
    return std::nullopt;
  }
  standby.socket.reset();
  return standby.pid;
}

std::vector<pid_t> StandbyWorkers::pids() const {
  std::vector<pid_t> pids;
  for (const auto& [local_rank, standby] : standby_) {
    if (standby.pid != 0) pids.push_back(standby.pid);
  }
  return pids;
}

bool StandbyWorkers::take_exit(pid_t pid) {
  const auto found = std::find_if(standby_.begin(), standby_.end(),
                                  [pid](const auto& entry) { return entry.second.pid == pid; });
  if (pid == 0 || found == standby_.end()) return false;
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return true;
  }
  ::kill(-pid, SIGKILL);  // its process group
  ::waitpid(pid, nullptr, WNOHANG);
  died(found->second, describe_exit(exit_status_of(info.si_code, info.si_status)));
  return true;
}

void StandbyWorkers::take_exits() {
  for (const pid_t pid : pids()) take_exit(pid);
}

// A program that closes the socket does not take part: it must not continue as if it were a worker.
void StandbyWorkers::listen(Standby& standby) {
  std::array<char, 16> word;
  ssize_t got = 0;
  while ((got = ::recv(standby.socket.get(), word.data(), word.size(), MSG_DONTWAIT)) > 0)
    standby.ready = true;
  if (got == 0) {
    standby.ready = false;
    kill(standby);
  }
}

void StandbyWorkers::add_poll_fds(std::vector<pollfd>& fds) const {
  for (const auto& [local_rank, standby] : standby_) {
    if (standby.socket.get() >= 0) fds.push_back({standby.socket.get(), POLLIN, 0});
  }
}

void StandbyWorkers::handle(const std::vector<pollfd>& fds) {
  for (auto& [local_rank, standby] : standby_) {
    if (standby.socket.get() >= 0 && is_ready(fds, standby.socket.get())) listen(standby);
    const bool wanted = standby.pid == 0 && standby.deaths < kMaxDeaths;
    if (wanted && Clock::now() >= standby.due) start(standby);
  }
  report_memory();
}

std::optional<Clock::time_point> StandbyWorkers::deadline() const {
  std::optional<Clock::time_point> next;
  for (const auto& [local_rank, standby] : standby_) {
    if (standby.pid == 0 && standby.deaths < kMaxDeaths) next = earlier(next, standby.due);
  }
  return next;
}

void StandbyWorkers::report_memory() {
  const auto is_ready = [](const auto& entry) { return entry.second.ready; };
  if (memory_reported_ || standby_.empty() ||
      !std::all_of(standby_.begin(), standby_.end(), is_ready)) {
    return;
  }
  memory_reported_ = true;
  long kib = 0;
  for (const pid_t pid : pids()) kib += own_memory_kib(pid);
  note_(fmt::format("standby workers: {}, {} MB", plural(std::ssize(standby_), "process", "es"),
                    (kib + 512) / 1024));
}

}  // namespace ddp::launch
