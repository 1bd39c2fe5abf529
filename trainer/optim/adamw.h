// AdamW (Loshchilov, Hutter: "Decoupled weight decay regularization", 2019) by torch's fused
// kernels.
#pragma once

#include <torch/torch.h>

#include <optional>
#include <string>
#include <vector>

#include "trainer/config/config.h"

namespace ddp::train {

/// One parameter with its state. Moments are float32 tensors of the parameter's shape.
struct OptimizedParameter {
  std::string name;
  torch::Tensor parameter;
  torch::Tensor exp_avg;
  torch::Tensor exp_avg_sq;
  bool decay = false;
};

class AdamW {
 public:
  /// Defines the gradient of each parameter as zeros, so that every step sees the same arithmetic
  /// as the first.
  AdamW(std::vector<OptimizedParameter> parameters, const OptimizerConfig& config);

  /// One update. With `found_inf` (float32 scalar on the parameters' device): no effect when it is
  /// 1, and no host sync.
  void step(const std::optional<torch::Tensor>& found_inf);
  /// Zeroes gradients in place: they may be views into DDP's buckets.
  void zero_grad();

  std::vector<torch::Tensor> gradients() const;
  const std::vector<OptimizedParameter>& parameters() const { return parameters_; }
  double learning_rate() const { return config_.learning_rate; }

  /// Number of updates that took effect, a float32 scalar on the parameters' device.
  torch::Tensor& step_count() { return step_count_; }
  const torch::Tensor& step_count() const { return step_count_; }

 private:
  void update(bool decay, const std::optional<torch::Tensor>& found_inf);

  std::vector<OptimizedParameter> parameters_;
  OptimizerConfig config_;
  torch::Tensor step_count_;
};

/// Scales `gradients` in place so that their global L2 norm is at most `max_norm` (0: no scaling),
/// as torch.nn.utils.clip_grad_norm_ does. Returns the norm before, a float32 scalar on their
/// device; no host sync.
torch::Tensor clip_grad_norm(const std::vector<torch::Tensor>& gradients, double max_norm);

}  // namespace ddp::train
