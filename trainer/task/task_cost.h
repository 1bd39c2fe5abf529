// Estimates the cost of training a task arithmetically: sizes, FLOPs and memory. Needs no model, so
// that `trainer estimate` and `trainer plan` support models that this machine could not hold.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "trainer/model/cost/training_cost.h"
#include "trainer/model/load/weights_layout.h"

namespace ddp::train {

struct Config;

class TaskCost {
 public:
  virtual ~TaskCost() = default;

  /// Units of speed per sample: the tokens of a text, 1 for an image.
  virtual int64_t units_per_sample() const = 0;
  virtual std::string_view unit() const = 0;  ///< "tokens", "images"

  /// The model's parameters; empty: unknown.
  virtual std::vector<ParameterPart> parameter_parts() const { return {}; }
  /// Floating-point operations of the model, forward and backward, for one unit; 0: unknown.
  virtual double flops_per_unit() const { return 0.0; }
  /// The formula of flops_per_unit(), for messages: "6N + 12LHQT per token".
  virtual std::string_view flops_formula() const { return ""; }
  /// The division of the model among ranks; empty if it cannot be divided.
  virtual WeightsLayout layout() const { return {}; }
  /// Throws UserError with the reason why the model cannot be divided as the distributed_config of
  /// `config` asks.
  virtual void check_division(const Config& config) const = 0;
  /// Memory that a rank needs to train this task with `config`, which may differ from the task's
  /// own in everything that does not depend on the data; empty: unknown.
  virtual std::vector<MemoryItem> memory_items(const Config& /*config*/,
                                               const ComputePlace& /*place*/) const {
    return {};
  }
};

}  // namespace ddp::train
