// Watches the numbers of each step: NaN, Inf, and spikes in loss or gradient norm.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <string>

#include "trainer/config/config.h"

namespace ddp::train {

enum class StepVerdict { kGood, kNotFinite, kSpike };

/// Decides from values that are equal on all ranks, so every rank decides the same. Part of the
/// training state: a resumed run decides as an uninterrupted one would. Logs nothing, changes
/// nothing outside itself.
class StepGuard {
 public:
  /// `spike_factor` 0: only what is not finite is bad.
  explicit StepGuard(double spike_factor) : spike_factor_(spike_factor) {}

  bool watches_spikes() const { return spike_factor_ > 0.0; }

  /// `loss`: mean over all ranks; `grad_norm`: before clipping, of the averaged gradients. A good
  /// step enters the history. A spike is above spike_factor times the median of the last 64 good
  /// steps, once there are 16.
  StepVerdict judge(double loss, double grad_norm);

  /// From now on `step` is left out when training comes to it (again).
  void leave_out(int64_t step) { left_out_.insert(step); }
  bool leaves_out(int64_t step) const { return left_out_.contains(step); }

  /// Steps whose update was skipped, and those that were left out, so far.
  void count_bad(int64_t step) { bad_.insert(step); }
  /// How many steps up to and with `step` were bad, without a good one between them.
  int64_t bad_in_a_row(int64_t step) const;
  int64_t bad_steps() const { return static_cast<int64_t>(bad_.size()); }

  /// JSON.
  std::string state() const;
  /// "" is the state of a new run. Throws RunError if `json` is anything else.
  void load_state(const std::string& json);
  /// Takes over the steps that `other` leaves out and has counted: after a rollback they stay
  /// known.
  void remember(const StepGuard& other);

 private:
  double spike_factor_;
  std::deque<double> losses_;
  std::deque<double> norms_;
  std::set<int64_t> left_out_;
  std::set<int64_t> bad_;
};

}  // namespace ddp::train
