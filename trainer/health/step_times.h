// Durations of the last steps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace ddp::train {

/// The last 256 durations, seconds.
class StepTimes {
 public:
  void add(double seconds) {
    if (times_.size() < kMost)
      times_.push_back(seconds);
    else
      times_[next_] = seconds;
    next_ = (next_ + 1) % kMost;
  }

  std::size_t count() const { return times_.size(); }
  /// Returns 0 if there are none.
  double median() const {
    if (times_.empty()) return 0.0;
    std::vector<double> sorted = times_;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return *middle;
  }
  double longest() const {
    return times_.empty() ? 0.0 : *std::max_element(times_.begin(), times_.end());
  }

 private:
  static constexpr std::size_t kMost = 256;
  std::vector<double> times_;
  std::size_t next_ = 0;
};

}  // namespace ddp::train
