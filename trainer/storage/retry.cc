#include "trainer/storage/retry.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <random>

#include "trainer/runtime/seed.h"
#include "trainer/storage/remote_folder.h"

namespace ddp::train {
namespace {

/// False when `stop` came before the time was over.
bool sleep_unless_stopped(std::chrono::milliseconds time, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any woken;
  std::unique_lock lock(mutex);
  return !woken.wait_for(lock, stop, time, [&] { return stop.stop_requested(); }) &&
         !stop.stop_requested();
}

}  // namespace

std::chrono::milliseconds RetrySchedule::wait(int failures, uint64_t random) const {
  const double exponent = std::max(failures, 1) - 1;
  const double grown = static_cast<double>(first.count()) * std::pow(factor, exponent);
  const double whole = std::min(grown, static_cast<double>(longest.count()));
  const double fraction = static_cast<double>(random >> 11U) / static_cast<double>(1ULL << 53U);
  return std::chrono::milliseconds(static_cast<int64_t>(whole * (0.5 + 0.5 * fraction)));
}

void retry(const RetrySchedule& schedule, std::chrono::milliseconds limit,
           const std::stop_token& stop, const std::function<void()>& call) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::random_device entropy;
  for (int failures = 1;; ++failures) {
    try {
      call();
      return;
    } catch (const RemoteError& error) {
      const auto wait = schedule.wait(failures, mix64(entropy(), entropy()));
      const bool in_time = std::chrono::steady_clock::now() + wait <= deadline;
      if (error.failure() != RemoteFailure::kAway || !in_time || stop.stop_requested()) throw;
      if (!sleep_unless_stopped(wait, stop)) throw;
    }
  }
}

}  // namespace ddp::train
