// The debuggers at work on workers that hang: few at a time, so that they do not bring a machine
// down that is in trouble already. Does not judge what they write, and waits for nobody.
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

  /// Writes the thread table of each worker into its file and has debuggers, as found on `path` (as
  /// in $PATH), add their stacks, in this order. False: none could be started.
  bool begin(const std::vector<Target>& targets, const std::string& path);
  /// To be told of every child's end. nullopt: it was no debugger, or not the last one. Else: the
  /// local ranks whose debuggers have failed.
  std::optional<std::vector<int>> take_exit(pid_t pid, bool ok);
  /// The rest is not wanted any more; take_exit() still tells the end.
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
  static pid_t start(const Job& job);  // 0: it cannot be started

  std::deque<Job> waiting_;
  std::map<pid_t, int> running_;  // -> local rank
  std::vector<int> failed_;
  bool cancelled_ = false;
};

}  // namespace ddp::launch
