#include "launcher/process_tree.h"

#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>

#include "launcher/proc_files.h"

namespace ddp::launch {
namespace {

// For kernels without CONFIG_PROC_CHILDREN.
std::vector<pid_t> children_by_scan() {
  std::vector<pid_t> children;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), ::closedir);
  if (!proc) return children;
  while (const dirent* entry = ::readdir(proc.get())) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid > 0 && read_stat("/proc/" + std::to_string(pid)).parent == ::getpid())
      children.push_back(pid);
  }
  return children;
}

bool wait_for_sigchld(Clock::duration timeout) {
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(timeout).count();
  if (ns <= 0) return false;
  const timespec limit{ns / 1'000'000'000, ns % 1'000'000'000};
  return ::sigtimedwait(&child, nullptr, &limit) == SIGCHLD;
}

std::vector<pid_t> without(std::vector<pid_t> pids, const std::vector<pid_t>& spare) {
  std::erase_if(
      pids, [&](pid_t pid) { return std::find(spare.begin(), spare.end(), pid) != spare.end(); });
  return pids;
}

}  // namespace

void become_subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::vector<pid_t> children_of_self() {
  const std::string self = std::to_string(::getpid());
  std::ifstream file("/proc/" + self + "/task/" + self + "/children");
  if (!file) return children_by_scan();
  std::vector<pid_t> children;
  for (pid_t pid; file >> pid;) children.push_back(pid);
  return children;
}

std::vector<std::string> kill_descendants(Clock::duration patience,
                                          const std::vector<pid_t>& spare) {
  const auto deadline = Clock::now() + patience;
  for (;;) {
    std::vector<pid_t> alive;
    for (const pid_t pid : without(children_of_self(), spare)) {
      ::kill(pid, SIGKILL);
      if (::waitpid(pid, nullptr, WNOHANG) == 0) alive.push_back(pid);
    }
    if (alive.empty()) {
      if (without(children_of_self(), spare).empty()) return {};
      continue;  // those that died left children
    }
    if (wait_for_sigchld(deadline - Clock::now()) || Clock::now() < deadline) continue;
    std::vector<std::string> survivors;
    for (const pid_t pid : alive) {
      survivors.push_back("pid " + std::to_string(pid) + " (state " +
                          read_stat("/proc/" + std::to_string(pid)).state + ")");
    }
    return survivors;
  }
}

}  // namespace ddp::launch
