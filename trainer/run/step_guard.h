// Checks each step for NaN, Inf, and spikes in loss or gradient norm.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <set>
#include <string>

namespace ddp::train {

enum class StepVerdict { kGood, kNotFinite, kSpike };

/// Uses only values that are equal on all ranks, so all ranks decide alike. Part of the training
/// state: a resumed run decides as an uninterrupted one would. Logs nothing and has no side
/// effects.
class StepGuard {
 public:
  /// `spike_factor` 0: only non-finite values are bad.
  explicit StepGuard(double spike_factor) : spike_factor_(spike_factor) {}

  bool watches_spikes() const { return spike_factor_ > 0.0; }

  /// `loss`: mean over all ranks; `grad_norm`: before clipping, of the averaged gradients. A good
  /// step enters the history. A spike is above spike_factor times the median of the last 64 good
  /// steps, once there are 16.
  StepVerdict judge(double loss, double grad_norm);

  /// From now on `step` is left out when training reaches it (again).
  void leave_out(int64_t step) { left_out_.insert(step); }
  bool leaves_out(int64_t step) const { return left_out_.contains(step); }

  /// Counts a step whose update was skipped, or that was left out.
  void count_bad(int64_t step) { bad_.insert(step); }
  /// Returns how many consecutive steps up to and including `step` were bad.
  int64_t bad_in_a_row(int64_t step) const;
  int64_t bad_steps() const { return static_cast<int64_t>(bad_.size()); }

  /// Returns JSON.
  std::string state() const;
  /// "" is the state of a new run. Throws RunError if `json` is anything else.
  void load_state(const std::string& json);
  /// Copies the steps that `other` leaves out and has counted: they persist across a
  /// rollback.
  void remember(const StepGuard& other);

 private:
  double spike_factor_;
  std::deque<double> losses_;
  std::deque<double> norms_;
  std::set<int64_t> left_out_;
  std::set<int64_t> bad_;
};

/// Distinguishes rollbacks after which training progresses from those that only repeat.
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
