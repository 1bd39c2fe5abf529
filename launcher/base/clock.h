// A point in time as system calls want it.
#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>

#include "launcher/base/worker.h"

namespace ddp::launch {

/// Zero when it is over.
inline timespec time_until(Clock::time_point deadline) {
  const auto left = std::max(deadline - Clock::now(), Clock::duration::zero());
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  return {ns / 1'000'000'000, ns % 1'000'000'000};
}

}  // namespace ddp::launch
