// The learning rate as a pure function of the step.
#pragma once

#include <cstdint>
#include <string>

#include "trainer/config/optimizer_config.h"

namespace ddp::train {

/// The formulas are those of transformers' get_*_schedule functions (constant_with_warmup, linear,
/// polynomial, cosine_with_min_lr, wsd with linear decay) and of torch's OneCycleLR with its
/// default factors; docs/training.md lists them.
class Schedule {
 public:
  /// `total_steps`: optimizer steps of the whole run. A run that is shorter than the schedule, such
  /// as a trial, ends in the middle of it. Throws UserError if the decay ends before the warm-up.
  Schedule(const OptimizerConfig& config, int64_t total_steps);

  /// Returns a warning if warm-up and decay take more than `total_steps`; else "".
  std::string cut_text(int64_t total_steps) const;

  /// The learning rate of the optimizer step that follows `step` finished ones.
  double learning_rate(int64_t step) const;

 private:
  double one_cycle(int64_t step) const;
  double warmup_stable_decay(int64_t step) const;

  OptimizerConfig config_;
  int64_t end_;  ///< Step from which on the rate is the last one.
};

}  // namespace ddp::train
