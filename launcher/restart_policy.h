// Whether a failed group is restarted, and when. Pure: a function of the rules and of what has
// happened.
#pragma once

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "launcher/worker_group.h"

namespace ddp::launch {

struct RestartRules {
  int max_restarts = 0;
  std::chrono::milliseconds delay{
      0};                       // before the first restart; doubles while rounds fail quickly
  int crash_loop = 0;           // give up after so many equal quick failures in a row; 0: never
  std::set<int> final_codes{};  // exit codes that no restart can mend
  std::chrono::milliseconds healthy_after{
      0};  // a round that lived so long gives all restarts back; 0: never
};

/// How a round ended: its root cause.
struct RoundEnd {
  int rank = 0;
  ExitStatus exit;
  Clock::duration lived{};
};

struct RestartVerdict {
  bool restart = false;
  int number = 0;  // of this restart, in the budget
  std::chrono::milliseconds delay{0};
  std::string gave_up;  // why there is no restart though some are left; empty otherwise
};

/// `history` must not be empty; its last entry has just happened.
RestartVerdict judge_restart(const RestartRules& rules, const std::vector<RoundEnd>& history);

}  // namespace ddp::launch
