#include "launcher/process/process_tree.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/path_search.h"
#include "launcher/base/system/proc_files.h"
#include "launcher/base/text.h"

namespace ddp::launch {
namespace {

bool is_child(idtype_t which, pid_t pid) {
  siginfo_t info{};
  return ::waitid(which, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

std::vector<pid_t> children_by_asking(pid_t most) {
  std::vector<pid_t> children;
  for (pid_t pid = 1; pid <= most; ++pid) {
    if (is_child(P_PID, pid)) children.push_back(pid);
  }
  return children;
}

// The kernel assigns PIDs in ascending order until it wraps around.
pid_t newest_pid() {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  if (pid > 0) ::waitpid(pid, nullptr, 0);
  return pid;
}

std::vector<pid_t> children_of_self() {
  constexpr pid_t kMostPids = 1 << 22;  // the kernel's limit; scanning them takes half a second
  auto children = children_of(::getpid());
  std::erase_if(children, [](pid_t pid) { return !is_child(P_PID, pid); });
  if (children.empty() && has_children()) children = children_by_asking(newest_pid());
  if (children.empty() && has_children()) children = children_by_asking(kMostPids);
  return children;
}

bool wait_for_sigchld(Clock::time_point deadline) {
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  const timespec limit = time_until(deadline);
  return ::sigtimedwait(&child, nullptr, &limit) == SIGCHLD;
}

// A pidfd; none: nothing to kill. Opened before checking the parent, so that a process that reuses
// the PID meanwhile is not signaled.
Descriptor kill_child_of(pid_t parent, pid_t pid) {
  Descriptor fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const ProcessStat stat = read_stat(process_folder(pid));
  if (fd.get() >= 0 && stat.parent == parent && stat.state != 'Z' &&
      ::syscall(SYS_pidfd_send_signal, fd.get(), SIGKILL, nullptr, 0) == 0) {
    return fd;
  }
  return Descriptor();
}

}  // namespace

void become_subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

bool has_children() { return is_child(P_ALL, 0); }

// A dead main thread has left its children to another thread.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  for (const auto& task : paths_in(process_folder(parent) + "/task")) {
    std::ifstream file(task / "children");
    for (pid_t pid; file >> pid;) children.push_back(pid);
  }
  return children;
}

std::vector<pid_t> children_except(const std::vector<pid_t>& except) {
  auto pids = children_of_self();
  std::erase_if(pids, [&](pid_t pid) {
    return std::find(except.begin(), except.end(), pid) != except.end();
  });
  return pids;
}

bool has_children_in_group(pid_t group) { return is_child(P_PGID, group); }

std::vector<std::string> kill_descendants(Clock::duration patience,
                                          const std::vector<pid_t>& except) {
  const auto deadline = Clock::now() + patience;
  for (;;) {
    std::vector<pid_t> alive;
    for (const pid_t pid : children_except(except)) {
      ::kill(pid, SIGKILL);
      if (::waitpid(pid, nullptr, WNOHANG) == 0) alive.push_back(pid);
    }
    if (alive.empty()) {
      if (children_except(except).empty()) return {};
      continue;  // the dead ones left children
    }
    if (wait_for_sigchld(deadline) || Clock::now() < deadline) continue;
    std::vector<std::string> survivors;
    for (const pid_t pid : alive) {
      const std::string folder = process_folder(pid);
      survivors.push_back(fmt::format("pid {} ({}, state {})", pid,
                                      printable(first_line(folder + "/comm")),
                                      read_stat(folder).state));
    }
    return survivors;
  }
}

void kill_children_of(pid_t parent, Clock::duration patience) {
  const auto deadline = Clock::now() + patience;
  for (;;) {
    std::vector<Descriptor> dying;
    for (const pid_t pid : children_of(parent)) {
      if (Descriptor fd = kill_child_of(parent, pid); fd.get() >= 0) dying.push_back(std::move(fd));
    }
    for (const Descriptor& child : dying) {
      pollfd ended{child.get(), POLLIN, 0};
      const timespec limit = time_until(deadline);
      ::ppoll(&ended, 1, &limit, nullptr);
    }
    if (dying.empty() || Clock::now() >= deadline) return;
  }
}

}  // namespace ddp::launch
