// Runs debuggers on hung workers, few at a time, so as not to overload a machine in trouble.
// Neither interprets their output nor waits.
#pragma once

#include <sys/types.h>

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/base/command.h"

namespace ddp::launch {

class StackDumper {
 public:
  struct Target {
    int local_rank = 0;
    pid_t pid = 0;
    std::string file;
  };

  /// Writes each worker's thread table to its file and has debuggers found on `path` (as in $PATH)
  /// add the stacks, in this order. False: none could be started.
  bool begin(const std::vector<Target>& targets, const std::string& path);
  /// Call for every child that exits. nullopt: not a debugger, or not the last one. Else: the local
  /// ranks whose debuggers failed.
  std::optional<std::vector<int>> take_exit(pid_t pid, bool ok);
  /// Drops the remaining dumps; take_exit() still reports the end.
  void cancel();
  /// All children of this process are dead.
  void forget_all();

 private:
  struct Job {
    int local_rank = 0;
    std::string file;
    Command tool;
  };
  void start_more();
  static pid_t start(const Job& job);  // 0: failed to start

  std::deque<Job> waiting_;
  std::map<pid_t, int> running_;  // -> local rank
  std::vector<int> failed_;
  bool cancelled_ = false;
};

}  // namespace ddp::launch
