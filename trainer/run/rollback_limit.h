// Tells rollbacks that lead on from those that only repeat.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ddp::train {

/// Counts from values that are equal on all ranks, so every rank decides the same. A restart of the
/// process begins anew.
class RollbackLimit {
 public:
  /// In a row, without a good step beyond the furthest one before them.
  static constexpr int kMost = 10;

  void good_step(int64_t step) { furthest_ = std::max(furthest_, step); }
  int64_t furthest() const { return furthest_; }

  /// Counts one more rollback; false when that would be one too many.
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
