// Distinguishes rollbacks after which training progresses from those that only repeat.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ddp::train {

/// Uses only values that are equal on all ranks, so all ranks decide alike. The count restarts with
/// the process.
class RollbackLimit {
 public:
  /// Maximum of consecutive rollbacks without a good step beyond the furthest one so far.
  static constexpr int kMost = 10;

  void good_step(int64_t step) { furthest_ = std::max(furthest_, step); }
  int64_t furthest() const { return furthest_; }

  /// Counts one more rollback; returns false if that exceeds the limit.
  bool allows_another() {
    in_a_row_ = furthest_ > at_last_ ? 1 : in_a_row_ + 1;
    at_last_ = furthest_;
    return in_a_row_ <= kMost;
  }

 private:
  int64_t furthest_ = 0;
  int64_t at_last_ = -1;
  int in_a_row_ = 0;
};

}  // namespace ddp::train
