#include "launcher/process/stack_dumper.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <csignal>
#include <utility>

#include "launcher/base/errors.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/system/memory_file.h"
#include "launcher/hang/stack_dump.h"
#include "launcher/process/spawn.h"
#include "launcher/process/worker_spec.h"

namespace ddp::launch {
namespace {

// gdb takes up to half a GiB for LibTorch's symbols, which must not come out of the workers'
// memory.
constexpr std::size_t kAtOnce = 2;
constexpr rlim_t kMostMemory = rlim_t{4} << 30;
constexpr int kCancelled = -1;

// The shell opens the file: on a disk that blocks, this process would wait for it. If it cannot be
// killed there, the report shows the tool, which would be taken for a worker otherwise.
Command appending_to(const std::string& file, const Command& tool) {
  const char* script = "printf %s \"${1##*/}\" >/proc/$$/comm; exec \"$@\" >>\"$0\" 2>&1";
  Command shell{"/bin/sh", {"sh", "-c", script, file, tool.executable}};
  shell.argv.insert(shell.argv.end(), tool.argv.begin() + 1, tool.argv.end());
  return shell;
}

}  // namespace

bool StackDumper::begin(const std::vector<Target>& targets, const std::string& path) {
  waiting_.clear();
  failed_.clear();
  texts_.clear();
  for (const Target& target : targets) {
    if (target.file.empty()) texts_.try_emplace(target.local_rank, memory_file(target.head));
    const auto tool = stack_tool(target.pid, path);
    if (!tool) continue;
    waiting_.push_back(
        {target.local_rank, target.file.empty() ? *tool : appending_to(target.file, *tool)});
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

pid_t StackDumper::start(const Job& job) const {
  WorkerSpec spec;
  spec.command = job.tool;
  spec.environment = inherited_environment();
  pid_t started = 0;
  try {
    const Descriptor null = open_null_device(O_RDWR);
    const auto text = texts_.find(job.local_rank);
    const int out = text == texts_.end() ? null.get() : text->second.get();
    PendingSpawn pending = begin_spawn(spec, {.in = null.get(), .out = out, .err = out}, false);
    const rlimit memory{kMostMemory, kMostMemory};
    ::prlimit(pending.pid, RLIMIT_DATA, &memory, nullptr);
    if (finish_spawn(pending) == 0) started = pending.pid;
  } catch (const LaunchError&) {  // out of processes: go without stacks
  }
  return started;
}

std::optional<std::vector<int>> StackDumper::take_exit(pid_t pid, bool ok) {
  const auto tool = running_.find(pid);
  if (tool == running_.end()) return std::nullopt;
  if (!ok && tool->second != kCancelled) failed_.push_back(tool->second);
  running_.erase(tool);
  start_more();
  if (!running_.empty()) return std::nullopt;
  return std::exchange(failed_, {});
}

void StackDumper::cancel() {
  waiting_.clear();
  failed_.clear();
  for (auto& [pid, local_rank] : running_) cancel(pid, local_rank);
}

void StackDumper::cancel(pid_t tool, int& local_rank) {
  local_rank = kCancelled;
  ::kill(-tool, SIGKILL);
}

std::string StackDumper::take_text(int local_rank, bool& complete) {
  const auto text = texts_.find(local_rank);
  if (text == texts_.end()) return "";
  complete =
      std::erase_if(waiting_, [&](const Job& job) { return job.local_rank == local_rank; }) == 0;
  for (auto& [pid, rank] : running_) {
    if (rank != local_rank) continue;
    complete = false;
    cancel(pid, rank);
  }
  const std::string taken = text_of(text->second.get());
  texts_.erase(text);
  return taken;
}

void StackDumper::forget_all() {
  waiting_.clear();
  running_.clear();
}

}  // namespace ddp::launch
