#include "launcher/process/warm_spares.h"

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

#include "launcher/base/descriptors.h"
#include "launcher/base/errors.h"
#include "launcher/base/proc_files.h"
#include "launcher/base/worker.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr auto kFirstSparePause =
    std::chrono::milliseconds(250);  // before a dead one is replaced; doubles

// Tried by a thread of its own, as priorities are each thread's own.
bool may_raise_priority() {
  bool may = false;
  std::thread([&may] {
    const int before = ::getpriority(PRIO_PROCESS, 0);
    may = ::setpriority(PRIO_PROCESS, 0, before + 1) == 0 &&
          ::setpriority(PRIO_PROCESS, 0, before) == 0;
  }).join();
  return may;
}

// What the worker's environment has that the spare's has not. Empty if they do not fit.
std::string handover(const WorkerSpec& spare, const WorkerSpec& worker) {
  std::string text;
  std::size_t shared = 0;
  for (const auto& [name, value] : worker.environment) {
    const auto known = spare.environment.find(name);
    if (known != spare.environment.end()) ++shared;
    if (known == spare.environment.end() || known->second != value)
      text.append(name).append("=").append(value).push_back('\0');
  }
  const bool fits = shared + 1 == spare.environment.size() &&  // all but DDP_SPARE_FD
                    text.size() <= static_cast<std::size_t>(kLongestHandover) &&
                    spare.command.argv == worker.command.argv && spare.cpus == worker.cpus;
  return fits ? text : "";
}

bool send_with_streams(int socket, const std::string& text, const WorkerStdio& stdio) {
  const std::array<int, 3> streams{stdio.in >= 0 ? stdio.in : STDIN_FILENO,
                                   stdio.out >= 0 ? stdio.out : STDOUT_FILENO,
                                   stdio.err >= 0 ? stdio.err : STDERR_FILENO};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof streams)> control{};
  iovec part{const_cast<char*>(text.data()), text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof streams);
  std::memcpy(CMSG_DATA(header), streams.data(), sizeof streams);
  const auto sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  return sent == static_cast<ssize_t>(text.size());
}

}  // namespace

WarmSpares::WarmSpares(std::function<void(const std::string&)> note, bool keep_hangup_ignored)
    : note_(std::move(note)), keep_hangup_ignored_(keep_hangup_ignored) {}

WarmSpares::~WarmSpares() { end(); }

void WarmSpares::keep(const std::vector<WorkerSpec>& specs) {
  end();
  const bool steps_back = may_raise_priority();
  for (const WorkerSpec& spec : specs) {
    Spare& spare = spares_[spec.local_rank];
    spare.spec = spec;
    spare.spec.steps_back = steps_back;
    start(spare);
  }
}

void WarmSpares::end() {
  for (auto& [local_rank, spare] : spares_) kill(spare);
  spares_.clear();
}

// It stays a child, to be reaped like any other.
void WarmSpares::kill(Spare& spare) {
  close_descriptor(spare.socket);
  if (spare.pid == 0) return;
  if (::kill(-spare.pid, SIGKILL) != 0) ::kill(spare.pid, SIGKILL);
}

void WarmSpares::start(Spare& spare) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return died(spare, error_text(errno));
  spare.socket = ends[0];
  spare.ready = false;
  try {
    spawn(spare, ends[1]);
  } catch (const LaunchError& error) {
    died(spare, error.what());
  }
  ::close(ends[1]);
}

void WarmSpares::spawn(Spare& spare, int theirs) {
  WorkerStdio nowhere;
  spare.spec.kept_descriptor = theirs;
  spare.spec.environment[kSpareFd] = std::to_string(theirs);
  try {
    for (int* fd : {&nowhere.in, &nowhere.out, &nowhere.err}) *fd = open_null_device(O_RDWR);
    PendingSpawn pending = begin_spawn(spare.spec, nowhere, keep_hangup_ignored_);
    spare.pid = pending.pid;
    finish_spawn(pending);  // if it fails, the process exits
  } catch (...) {
    close_stdio(nowhere);
    throw;
  }
  close_stdio(nowhere);
}

void WarmSpares::died(Spare& spare, const std::string& how) {
  close_descriptor(spare.socket);
  spare.pid = 0;
  spare.ready = false;
  spare.due = Clock::now() + kFirstSparePause * (1 << spare.deaths);
  if (++spare.deaths < kMostDeaths) return;
  note_(
      fmt::format("the warm spare of local rank {} ended {} times before it was needed ({}); "
                  "this round goes on without",
                  spare.spec.local_rank, spare.deaths, how));
}

std::optional<pid_t> WarmSpares::hand_over(const WorkerSpec& worker, const WorkerStdio& stdio) {
  const auto found = spares_.find(worker.local_rank);
  if (found == spares_.end()) return std::nullopt;
  Spare spare = std::move(found->second);
  spares_.erase(found);
  if (spare.pid != 0) listen(spare);
  // First of all, and for all its threads: it goes on at once.
  if (spare.ready && spare.spec.steps_back)
    ::setpriority(PRIO_PGRP, static_cast<id_t>(spare.pid), ::getpriority(PRIO_PROCESS, 0));
  const std::string text = spare.ready ? handover(spare.spec, worker) : "";
  if (text.empty() || !send_with_streams(spare.socket, text, stdio)) {
    kill(spare);
    return std::nullopt;
  }
  close_descriptor(spare.socket);
  return spare.pid;
}

std::vector<pid_t> WarmSpares::pids() const {
  std::vector<pid_t> pids;
  for (const auto& [local_rank, spare] : spares_) {
    if (spare.pid != 0) pids.push_back(spare.pid);
  }
  return pids;
}

bool WarmSpares::take_exit(pid_t pid) {
  const auto found = std::find_if(spares_.begin(), spares_.end(),
                                  [pid](const auto& entry) { return entry.second.pid == pid; });
  if (pid == 0 || found == spares_.end()) return false;
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return true;
  }
  ::kill(-pid, SIGKILL);  // what it has started
  ::waitpid(pid, nullptr, WNOHANG);
  const bool exited = info.si_code == CLD_EXITED;
  died(found->second, describe_exit({exited ? info.si_status : 0, exited ? 0 : info.si_status}));
  return true;
}

void WarmSpares::take_exits() {
  for (const pid_t pid : pids()) take_exit(pid);
}

// A program that closes the socket has no use for it: it must not go on as if it were a worker.
void WarmSpares::listen(Spare& spare) {
  std::array<char, 16> word;
  ssize_t got = 0;
  while ((got = ::recv(spare.socket, word.data(), word.size(), MSG_DONTWAIT)) > 0)
    spare.ready = true;
  if (got == 0) {
    spare.ready = false;
    kill(spare);
  }
}

void WarmSpares::add_poll_fds(std::vector<pollfd>& fds) const {
  for (const auto& [local_rank, spare] : spares_) {
    if (spare.socket >= 0) fds.push_back({spare.socket, POLLIN, 0});
  }
}

void WarmSpares::handle(const std::vector<pollfd>& fds) {
  for (auto& [local_rank, spare] : spares_) {
    const int socket = spare.socket;
    const bool spoke = std::any_of(fds.begin(), fds.end(), [socket](const pollfd& fd) {
      return fd.fd == socket && fd.revents != 0;
    });
    if (socket >= 0 && spoke) listen(spare);
    const bool wanted = spare.pid == 0 && spare.deaths < kMostDeaths;
    if (wanted && Clock::now() >= spare.due) start(spare);
  }
  say_memory();
}

std::optional<Clock::time_point> WarmSpares::deadline() const {
  std::optional<Clock::time_point> next;
  for (const auto& [local_rank, spare] : spares_) {
    if (spare.pid == 0 && spare.deaths < kMostDeaths)
      next = next ? std::min(*next, spare.due) : spare.due;
  }
  return next;
}

void WarmSpares::say_memory() {
  const auto is_ready = [](const auto& entry) { return entry.second.ready; };
  if (memory_said_ || spares_.empty() || !std::all_of(spares_.begin(), spares_.end(), is_ready)) {
    return;
  }
  memory_said_ = true;
  long kib = 0;
  for (const pid_t pid : pids()) kib += own_memory_kib(pid);
  note_(fmt::format("spares: {} process{}, {} MB", spares_.size(), spares_.size() == 1 ? "" : "es",
                    (kib + 512) / 1024));
}

}  // namespace ddp::launch
