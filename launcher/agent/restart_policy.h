// Whether a failed group is restarted, and when. Pure: a function of the rules and of what has
// happened.
#pragma once

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "launcher/base/worker.h"

namespace ddp::launch {

/// --restart-policy: which failures are worth another try at all.
enum class RestartPolicy {
  OnFailure,  // every one
  OnCrash,    // death by a signal, or a hang: exit codes are what the program chose
  Never,
};

struct RestartRules {
  RestartPolicy policy = RestartPolicy::OnFailure;
  int max_restarts = 0;
  std::chrono::milliseconds delay{
      0};                       // before the first restart; doubles while rounds fail quickly
  int crash_loop = 0;           // give up after so many equal quick failures in a row; 0: never
  std::set<int> final_codes{};  // exit codes that no restart can mend
  std::set<int> retry_codes{};  // exit codes that are worth it, whatever the policy says
  std::chrono::milliseconds healthy_after{
      0};  // a round that lived so long gives all restarts back; 0: never
};

/// How a round ended: its root cause.
struct RoundEnd {
  int rank = 0;
  ExitStatus exit;
  Clock::duration lived{};  // until that failure: the grace of its peers does not count
  std::string progress{};   // what its last heartbeat said: equal words mean that it got no further
};

/// The worker has saved its state and asks to be started later, not now.
bool is_preemption(const RestartRules& rules, const ExitStatus& exit);

struct RestartVerdict {
  bool restart = false;
  int number = 0;  // of this restart, in the budget
  std::chrono::milliseconds delay{0};
  std::string gave_up;  // why there is no restart though some are left; empty otherwise
};

/// `history` must not be empty; its last entry has just happened.
RestartVerdict judge_restart(const RestartRules& rules, const std::vector<RoundEnd>& history);

}  // namespace ddp::launch
