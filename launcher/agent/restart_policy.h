// Whether a failed group is restarted, and when. Pure: a function of the rules and of what has
// happened.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/restart_rules.h"
#include "launcher/base/worker.h"

namespace ddp::launch {

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
