// Finding and killing the processes of a running job.
#pragma once

#include <sys/inotify.h>
#include <sys/types.h>

#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/e2e/job.h"

namespace ddp::test {

/// The live process that runs as `rank` in the workspace, or 0.
pid_t worker_pid(const Workspace& place, int rank);

/// The live processes that ddp-run has started early in the workspace: those that wait, and those
/// that have become workers.
std::vector<pid_t> spare_pids(const Workspace& place);

/// What happened to a file in a watched folder.
struct FileEvent {
  std::uint32_t mask = 0;  // IN_CREATE, IN_MODIFY, IN_MOVED_TO, ...
  std::string name;
};

/// Events of the files in a folder, in their order, without polling.
class FolderWatch {
 public:
  explicit FolderWatch(const std::string& folder);
  ~FolderWatch();
  FolderWatch(const FolderWatch&) = delete;
  FolderWatch& operator=(const FolderWatch&) = delete;

  void forget_past_events();
  /// The next event that `wanted` accepts, or nothing after `bound`.
  std::optional<FileEvent> wait_for(const std::function<bool(const FileEvent&)>& wanted,
                                    ChildProgram::Time bound);

 private:
  int fd_ = -1;
};

/// Random numbers whose seed is printed; DDP_E2E_SEED in the environment repeats a run.
class Dice {
 public:
  Dice();
  /// One of low, ..., high.
  int roll(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }

 private:
  std::mt19937 engine_;
};

/// Whether the process is stopped by a signal, as by the fault kind=stop.
bool is_stopped(pid_t pid);
void wait_until_stopped(pid_t pid);

}  // namespace ddp::test
