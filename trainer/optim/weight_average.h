// An exponential moving average of the weights, for evaluation and export.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "trainer/optim/optimizer.h"

namespace ddp::train {

/// average <- decay * average + (1 - decay) * weights after each update, as
/// torch.optim.swa_utils.get_ema_multi_avg_fn does; starts as the weights themselves.
class WeightAverage {
 public:
  /// With a decay of 0 it does nothing and holds nothing.
  WeightAverage(const std::vector<Parameter>& parameters, double decay);

  bool enabled() const { return !averages_.empty(); }
  /// `found_inf` (float32 scalar): if 1, the update has no effect; no host sync.
  void update(const torch::Tensor& found_inf);
  /// Swaps weights and averages, copying only pieces; a second call reverts it.
  void swap();
  /// `<parameter>`; the tensors are its own.
  std::vector<NamedTensor> state() const;
  /// Restarts the averages from the weights.
  void restart();

 private:
  double decay_;
  std::vector<Parameter> parameters_;
  std::vector<torch::Tensor> averages_;  // in the order of the parameters
};

}  // namespace ddp::train
