#include "launcher/process/spawn.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <memory>

#include "launcher/base/errors.h"
#include "launcher/base/system/cgroup.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr int kStepBack = 10;

std::vector<char*> c_strings(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (auto& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::size_t cpu_set_size(const std::vector<int>& cpus) {
  return cpus.empty() ? 0 : CPU_ALLOC_SIZE(*std::max_element(cpus.begin(), cpus.end()) + 1);
}

using CpuSet = std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)>;

CpuSet cpu_set(const std::vector<int>& cpus) {
  const auto release = [](cpu_set_t* set) { CPU_FREE(set); };
  if (cpus.empty()) return {nullptr, release};
  CpuSet set(CPU_ALLOC(*std::max_element(cpus.begin(), cpus.end()) + 1), release);
  CPU_ZERO_S(cpu_set_size(cpus), set.get());
  for (const int cpu : cpus) CPU_SET_S(cpu, cpu_set_size(cpus), set.get());
  return set;
}

void reset_signals(bool keep_hangup_ignored) {
  for (int signal = 1; signal < NSIG; ++signal) {
    if (signal != SIGHUP || !keep_hangup_ignored) ::signal(signal, SIG_DFL);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

struct ChildPlan {
  const char* executable;
  char* const* argv;
  char* const* env;
  WorkerStdio stdio;
  pid_t parent;
  int exec_pipe;
  bool keep_hangup_ignored;
  const cpu_set_t* cpus;  // nullptr: inherit ours
  std::size_t cpus_size;
  int kept_descriptor;
  bool low_priority;
};

// Between fork and exec: system calls only.
[[noreturn]] void run_child(const ChildPlan& plan) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.parent) ::_exit(kExitFailed);  // the parent died before the line above
  // By default Yama lets only ancestors attach: allow our debuggers, which are our children.
  ::prctl(PR_SET_PTRACER, plan.parent, 0, 0, 0);
  ::setsid();
  // CPUs may have gone offline since they were chosen: fall back to all of ours.
  if (plan.cpus) ::sched_setaffinity(0, plan.cpus_size, plan.cpus);
  if (plan.stdio.in >= 0) ::dup2(plan.stdio.in, STDIN_FILENO);
  if (plan.stdio.out >= 0) ::dup2(plan.stdio.out, STDOUT_FILENO);
  if (plan.stdio.err >= 0) ::dup2(plan.stdio.err, STDERR_FILENO);
  reset_signals(plan.keep_hangup_ignored);
  close_all_from(STDERR_FILENO + 1, /*at_exec=*/true);
  if (plan.kept_descriptor >= 0) ::fcntl(plan.kept_descriptor, F_SETFD, 0);
  if (plan.low_priority) ::setpriority(PRIO_PROCESS, 0, ::getpriority(PRIO_PROCESS, 0) + kStepBack);
  restore_descriptor_limit();
  ::execve(plan.executable, plan.argv, plan.env);
  const int error = errno;
  [[maybe_unused]] const ssize_t told = ::write(plan.exec_pipe, &error, sizeof error);
  ::_exit(kExitNotExecutable);
}

}  // namespace

PendingSpawn begin_spawn(const WorkerSpec& spec, const WorkerStdio& stdio,
                         bool keep_hangup_ignored) {
  // All memory is allocated before fork: the child only makes system calls.
  std::vector<std::string> args = spec.command.argv;
  std::vector<std::string> settings;
  for (const auto& [name, value] : spec.environment) settings.push_back(name + "=" + value);
  const auto argv = c_strings(args);
  const auto env = c_strings(settings);

  const auto cpus = cpu_set(spec.cpus);

  PipeEnds ends = open_pipe("start a worker");
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  const int error = errno;
  if (pid == 0) {
    run_child({spec.command.executable.c_str(), argv.data(), env.data(), stdio, parent,
               ends.write.get(), keep_hangup_ignored, cpus.get(), cpu_set_size(spec.cpus),
               spec.kept_descriptor, spec.low_priority});
  }
  if (pid < 0) {
    const std::string limit = reached_pids_limit();
    throw LaunchError(
        kExitFailed,
        "cannot start local rank " + std::to_string(spec.local_rank) + ": " + error_text(error) +
            (limit.empty() ? "; check ulimit -u and the memory limit" : "; raise " + limit));
  }
  return {pid, std::move(ends.read)};
}

int finish_spawn(PendingSpawn& pending) {
  if (pending.exec_pipe.get() < 0) return 0;
  int error = 0;
  ssize_t got = 0;
  do {
    got = ::read(pending.exec_pipe.get(), &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  pending.exec_pipe.reset();
  return got == static_cast<ssize_t>(sizeof error) ? error : 0;
}

}  // namespace ddp::launch
