// The learning rate as a pure function of the step.
#pragma once

#include <cstdint>

#include "trainer/config/config.h"

namespace ddp::train {

class Schedule {
 public:
  explicit Schedule(const OptimizerConfig& config);

  /// Of the optimizer step that follows `step` finished ones.
  double learning_rate(int64_t step) const;

 private:
  OptimizerConfig config_;
};

}  // namespace ddp::train
