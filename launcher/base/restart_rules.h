// The user's rules for restarts: a plain struct.
#pragma once

#include <array>
#include <chrono>
#include <set>

#include "launcher/base/worker.h"

namespace ddp::launch {

/// --restart-policy: which failures may trigger a restart.
enum class RestartPolicy {
  kOnFailure,  // any failure
  kOnCrash,    // fatal signals and hangs; exit codes are the program's own choice
  kNever,
};
/// In the order of RestartPolicy.
inline constexpr std::array<const char*, 3> kRestartPolicies{"on-failure", "on-crash", "never"};
static_assert(kRestartPolicies.size() == static_cast<std::size_t>(RestartPolicy::kNever) + 1);

struct RestartRules {
  RestartPolicy policy = RestartPolicy::kOnFailure;
  int max_restarts = 0;
  /// A failure within this time of its round's start is quick, unless the round was healthy.
  std::chrono::milliseconds quick{10'000};
  /// The first restart is immediate; while rounds fail quickly the following ones wait this long,
  /// doubled each time.
  std::chrono::milliseconds delay{1'000};
  std::chrono::milliseconds longest_delay{60'000};
  int crash_loop = 10;          // give up after this many identical quick failures in a row
  std::set<int> final_codes{};  // exit codes that are never retried
  std::set<int> retry_codes{};  // exit codes that are always retried
  WorkerProgram program = WorkerProgram::kOther;
  /// A round that ran this long is healthy: it resets the restart count; 0: none is.
  std::chrono::milliseconds healthy_after{0};
};

}  // namespace ddp::launch
