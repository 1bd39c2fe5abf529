// Decides whether and when a failed group is restarted. Pure: a function of the rules and the
// history.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/restart_rules.h"
#include "launcher/base/run_result.h"
#include "launcher/base/states.h"
#include "launcher/base/worker.h"

namespace ddp::launch {

/// How a round ended: its root cause.
struct RoundEnd {
  int rank = 0;
  ExitStatus exit;
  Clock::duration lived{};  // until that failure, without the peers' grace period
  std::string progress{};   // its last heartbeat; identical text means no progress
};

RoundEnd round_end(const ProcessFailure& cause);

/// A summary of a job's failed rounds, of constant size.
struct RestartTally {
  RoundEnd last{};    // the round that ended last
  int unhealthy = 0;  // rounds since the last healthy one
  int quick = 0;      // in a row that ended quickly
  int same = 0;       // consecutive rounds that ended quickly and as the last one did

  void add(const RestartRules& rules, RoundEnd end);
};

/// Returns a failure of the job not caused by a worker, seen now.
ProcessFailure job_failure(const std::string& cause);

/// Whether the worker saved its state and asks to be restarted later, not now.
bool is_preemption(const RestartRules& rules, const ExitStatus& exit);

struct RestartVerdict {
  bool restart = false;
  int number = 0;  // of this restart within the budget
  std::chrono::milliseconds delay{0};
  std::string gave_up{};  // why there is no restart although some are left; else ""
};

/// Returns the outcome of a run that ends with these failures: Succeeded, Failed, or Preempted if
/// all workers were.
Outcome outcome_of(const RestartRules& rules, const std::vector<ProcessFailure>& failures);

/// Decides after a round that was added to `tally`.
RestartVerdict judge_restart(const RestartRules& rules, const RestartTally& tally);

/// Returns how long to wait after `count` consecutive quick rounds with the same end: the first
/// restart is immediate.
std::chrono::milliseconds delay_after(const RestartRules& rules, int count);

/// "rank 0 (local rank 0, pid 100): killed by SIGKILL; restart 1 of 3 in 2 s".
std::string restart_text(const ProcessFailure& cause, const RestartVerdict& verdict,
                         int max_restarts);

}  // namespace ddp::launch
