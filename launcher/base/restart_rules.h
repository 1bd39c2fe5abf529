// Which failures trigger a restart, and when, as the user asked.
#pragma once

#include <chrono>
#include <set>

#include "launcher/base/exit_meaning.h"

namespace ddp::launch {

/// --restart-policy: which failures may trigger a restart.
enum class RestartPolicy {
  OnFailure,  // every one
  OnCrash,    // fatal signals and hangs; exit codes are the program's own choice
  Never,
};

struct RestartRules {
  RestartPolicy policy = RestartPolicy::OnFailure;
  int max_restarts = 0;
  /// Before the first restart; doubles while rounds fail quickly.
  std::chrono::milliseconds delay{0};
  int crash_loop = 0;  // give up after this many identical quick failures in a row; 0: never
  std::set<int> final_codes{};  // exit codes that are never retried
  std::set<int> retry_codes{};  // exit codes that are always retried
  WorkerProgram program = WorkerProgram::Other;
  /// A round that ran this long resets the restart count; 0: never.
  std::chrono::milliseconds healthy_after{0};
};

}  // namespace ddp::launch
