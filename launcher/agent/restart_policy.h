// Decides whether and when a failed group is restarted. Pure: a function of the rules and the
// history.
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
  Clock::duration lived{};  // until that failure, excluding its peers' grace period
  std::string progress{};   // its last heartbeat; the same text means no progress
};

/// The worker saved its state and asks to be restarted later, not now.
bool is_preemption(const RestartRules& rules, const ExitStatus& exit);

struct RestartVerdict {
  bool restart = false;
  int number = 0;  // of this restart, in the budget
  std::chrono::milliseconds delay{0};
  std::string gave_up;  // why there is no restart although some are left; else empty
};

/// `history` must not be empty; its last entry has just happened.
RestartVerdict judge_restart(const RestartRules& rules, const std::vector<RoundEnd>& history);

}  // namespace ddp::launch
