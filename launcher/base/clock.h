// The clock for all waiting, deadlines as system calls take them, and the time of day.
#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>
#include <optional>

namespace ddp::launch {

using Clock = std::chrono::steady_clock;

/// Time left until `deadline`, for system calls; zero once it has passed.
inline timespec time_until(Clock::time_point deadline) {
  const auto left = std::max(deadline - Clock::now(), Clock::duration::zero());
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  return {ns / 1'000'000'000, ns % 1'000'000'000};
}

/// Returns the earlier of two deadlines; nullopt: never.
inline std::optional<Clock::time_point> earlier(std::optional<Clock::time_point> a,
                                                std::optional<Clock::time_point> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

/// The earliest of several times after `seen`, as a deadline(): earlier times have had their effect
/// in the turn at `seen`, even if something else is still awaited.
class NextTime {
 public:
  explicit NextTime(Clock::time_point seen) : seen_(seen) {}
  void consider(std::optional<Clock::time_point> time) {
    if (time && *time > seen_ && (!next_ || *time < *next_)) next_ = time;
  }
  std::optional<Clock::time_point> time() const { return next_; }

 private:
  Clock::time_point seen_;
  std::optional<Clock::time_point> next_{};
};

/// Seconds since 1970, for timestamps shown to others.
inline double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace ddp::launch
