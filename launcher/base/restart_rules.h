// Which failures are worth a restart, and when: what the user has asked for.
#pragma once

#include <chrono>
#include <set>

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

}  // namespace ddp::launch
