// Retries: exponential backoff with jitter, as a pure function, and the loop around a call.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <stop_token>

namespace ddp::train {

struct RetrySchedule {
  std::chrono::milliseconds first{500};
  std::chrono::milliseconds longest{60'000};
  double factor = 2;

  /// Wait after failure number `failures` (1, 2, ...): between half and all of
  /// min(longest, first * factor^(failures - 1)), chosen by `random`, so that many ranks and jobs
  /// do not retry in lockstep.
  std::chrono::milliseconds wait(int failures, uint64_t random) const;
};

/// Calls `call` until it returns, at least once; waits between by `schedule`. Rethrows its
/// exception unless that is a RemoteError of kind kAway; also if `stop` is requested, or if the
/// next attempt would start after `limit` from now.
void retry(const RetrySchedule& schedule, std::chrono::milliseconds limit,
           const std::stop_token& stop, const std::function<void()>& call);

}  // namespace ddp::train
