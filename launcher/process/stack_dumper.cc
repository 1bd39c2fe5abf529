#include "launcher/process/stack_dumper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/messages.h"
#include "launcher/hang/stack_dump.h"
#include "launcher/process/spawn.h"
#include "launcher/process/worker_spec.h"

namespace ddp::launch {
namespace {

// gdb takes up to half a GiB for LibTorch's symbols, which must not come out of the workers'
// memory.
constexpr std::size_t kAtOnce = 2;
constexpr rlim_t kMostMemory = rlim_t{4} << 30;

bool write_thread_table(const StackDumper::Target& target) {
  const int file = ::open(target.file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return false;
  write_fully(file, fmt::format("pid {}: {}\n{}", target.pid, kernel_state(target.pid).text,
                                thread_table(target.pid)));
  ::close(file);
  return true;
}

}  // namespace

bool StackDumper::begin(const std::vector<Target>& targets, const std::string& path) {
  waiting_.clear();
  failed_.clear();
  cancelled_ = false;
  for (const Target& target : targets) {
    if (!write_thread_table(target) || !target.by_debugger) continue;
    if (const auto tool = stack_tool(target.pid, path))
      waiting_.push_back({target.local_rank, target.file, *tool});
  }
  start_more();
  return !running_.empty();
}

void StackDumper::start_more() {
  while (running_.size() < kAtOnce && !waiting_.empty()) {
    const Job job = std::move(waiting_.front());
    waiting_.pop_front();
    if (const pid_t pid = start(job); pid != 0) {
      running_[pid] = job.local_rank;
    } else {
      failed_.push_back(job.local_rank);
    }
  }
}

pid_t StackDumper::start(const Job& job) {
  const int file = ::open(job.file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0) return 0;
  WorkerSpec spec;
  spec.command = job.tool;
  spec.environment = inherited_environment();
  pid_t started = 0;
  try {
    PendingSpawn pending = begin_spawn(spec, {.out = file, .err = file}, false);
    const rlimit memory{kMostMemory, kMostMemory};
    ::prlimit(pending.pid, RLIMIT_DATA, &memory, nullptr);
    if (finish_spawn(pending) == 0) started = pending.pid;
  } catch (const LaunchError&) {  // out of processes: go without stacks
  }
  ::close(file);
  return started;
}

std::optional<std::vector<int>> StackDumper::take_exit(pid_t pid, bool ok) {
  const auto tool = running_.find(pid);
  if (tool == running_.end()) return std::nullopt;
  if (!ok && !cancelled_) failed_.push_back(tool->second);
  running_.erase(tool);
  start_more();
  if (!running_.empty()) return std::nullopt;
  return std::exchange(failed_, {});
}

void StackDumper::cancel() {
  cancelled_ = true;
  waiting_.clear();
  failed_.clear();
  for (const auto& [pid, local_rank] : running_) ::kill(pid, SIGKILL);
}

void StackDumper::forget_all() {
  waiting_.clear();
  running_.clear();
}

}  // namespace ddp::launch
