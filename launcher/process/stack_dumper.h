// Runs debuggers on workers, a few at a time so as not to overload the machine. Neither interprets
// their output nor waits.
#pragma once

#include <sys/types.h>

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/command.h"
#include "launcher/base/system/descriptors.h"

namespace ddp::launch {

class StackDumper {
 public:
  struct Target {
    int local_rank = 0;
    pid_t pid = 0;
    std::string file;    // empty: take_text()
    std::string head{};  // for take_text(): what precedes the stacks
  };

  /// Has debuggers found on `path` (as in $PATH) append each worker's stacks to its file, in this
  /// order. Returns false if none could be started.
  bool begin(const std::vector<Target>& targets, const std::string& path);
  /// Returns what is known of this worker's stacks, once, and ends its debugger, if it has not
  /// ended: then `complete` is set to false.
  std::string take_text(int local_rank, bool& complete);
  /// Call for every child that exits. Returns the local ranks whose debuggers failed once the last
  /// one has exited; nullopt if `pid` is not a debugger or not the last one.
  std::optional<std::vector<int>> take_exit(pid_t pid, bool ok);
  /// Drops the remaining dumps; take_exit() still reports the end.
  void cancel();
  /// Call once all children of this process are dead.
  void forget_all();

 private:
  struct Job {
    int local_rank = 0;
    Command tool;
  };
  void start_more();
  pid_t start(const Job& job) const;  // 0: failed to start
  void cancel(pid_t tool, int& local_rank);

  std::deque<Job> waiting_;
  std::map<pid_t, int> running_;  // -> local rank; kCancelled: ended by this class
  std::vector<int> failed_;
  std::map<int, Descriptor> texts_;  // by local rank
};

}  // namespace ddp::launch
