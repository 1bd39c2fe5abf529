// An exponential moving average of the weights, for evaluation and for what is exported.
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
  /// `found_inf` (float32 scalar): no effect when it is 1, and no host sync.
  void update(const torch::Tensor& found_inf);
  /// Exchanges weights and averages, not copying them unless they are pieces; twice is as before.
  void swap();
  /// `<parameter>`; the tensors are its own.
  std::vector<NamedTensor> state() const;
  /// The averages start anew from the weights.
  void restart();

 private:
  double decay_;
  std::vector<Parameter> parameters_;
  std::vector<torch::Tensor> averages_;  // in the order of the parameters
};

}  // namespace ddp::train
