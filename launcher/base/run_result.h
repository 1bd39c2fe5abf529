// How a run ended, and the failures that ended it: plain structs.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/states.h"
#include "launcher/base/worker.h"

namespace ddp::launch {

/// A worker that failed on its own, or a failure of something else the round depends on. In the
/// latter case both ranks are kNoRank and `cause` describes it.
struct ProcessFailure {
  static constexpr int kNoRank = -1;

  int local_rank = 0;
  int rank = 0;
  pid_t pid = 0;
  ExitStatus exit;
  ErrorFile error_file{};
  std::string last_stderr{};  // the last lines it wrote
  std::string cause{};        // the system's explanation of this death; may be empty
  std::string hang{};         // how long and where it hung; empty: it exited
  std::string heartbeat{};    // text of its last heartbeat
  Progress progress{};        // parsed from the heartbeat
  std::string host{};         // empty: this host
  std::string message{};      // text of its error file, on other nodes' failures only
  double time = 0;            // when ddp-run saw it, in Unix seconds
  Clock::duration lived{};    // from the start of the round until `time`
  std::string stacks{};       // file with its stacks when it hung; empty: none

  bool is_worker() const { return local_rank != kNoRank; }
};

/// A round that failed and was followed by another one.
struct EarlierRound {
  int attempt = 0;
  ProcessFailure cause;
};

struct RunResult {
  static constexpr std::size_t kMaxEarlier = 20;

  Outcome outcome = Outcome::kSucceeded;
  int signal = 0;  // Interrupted: the signal that ended the job
  // Failures of the last round, root cause first; if a signal interrupted it, only earlier ones.
  std::vector<ProcessFailure> failures;
  std::vector<EarlierRound> earlier;  // the newest kMaxEarlier, oldest first
  WorkerProgram program = WorkerProgram::kOther;
  int attempt = 0;     // the last round: TORCHELASTIC_RESTART_COUNT
  int stopped = 0;     // workers stopped because of the failure
  int world_size = 0;  // of the last round, over all nodes; 0: there was no round
  int restarts = 0;
  int max_restarts = 0;
  std::vector<Worker> workers;         // of the last round
  Clock::duration lived{};             // all rounds together
  std::string gave_up;                 // why restarts were left unused
  std::vector<std::string> survivors;  // "pid 12 (python3, state D)": could not be killed in time
};

/// Returns whether there is a failure to report: one that ended the job or that preceded the signal
/// that did.
bool has_failed(const RunResult& result);

/// Returns whether trainer rejected its command line or configuration and a worker of this node
/// printed the reason to stderr.
bool is_explained_usage_error(const RunResult& result);

/// Returns ddp-run's exit code.
int exit_code(const RunResult& result);

}  // namespace ddp::launch
