// AdamW, Adam and SGD by torch's fused kernels, or Adam by trainer's own (adam_kernel.h,
// blockwise_adam.h).
#pragma once

#include <torch/torch.h>

#include <optional>
#include <vector>

#include "trainer/config/optimizer_config.h"
#include "trainer/optim/blockwise_adam.h"
#include "trainer/optim/optimizer.h"

namespace ddp::train {

/// AdamW (I. Loshchilov, F. Hutter: "Decoupled weight decay regularization", 2019), or Adam (D.
/// Kingma, J. Ba, 2015), whose weight decay is added to the gradient. State: exp_avg and
/// exp_avg_sq, float32 of the parameter's shape; where has_8_bit_state(), each is uint8 instead,
/// and float32 `<name>_absmax` has a number per block.
class Adam : public Optimizer {
 public:
  enum class Decay { kDecoupled, kInGradient };
  Adam(TrainedParameters trained, const OptimizerConfig& config, Decay decay);

  std::vector<NamedTensor> state() const override;

 protected:
  bool scales_gradients() const override { return true; }
  bool update(double learning_rate, const torch::Tensor& found_inf, const torch::Tensor& scale,
              const CopyOf& copy_of) override;

 private:
  bool update_group(const ParameterGroup& group, double learning_rate,
                    const torch::Tensor& found_inf, const torch::Tensor& scale,
                    const CopyOf& copy_of);

  void update_blocks(const ParameterGroup& group, double learning_rate,
                     const torch::Tensor& found_inf, const torch::Tensor& scale);
  AdamNumbers numbers_of(const ParameterGroup& group, double learning_rate) const;

  struct BlockAverages {
    BlockAverage exp_avg, exp_avg_sq;
  };

  OptimizerConfig config_;
  Decay decay_;
  std::vector<torch::Tensor> exp_avgs_;  // in the order of the parameters, as all below
  std::vector<torch::Tensor> exp_avg_sqs_;
  std::vector<std::optional<BlockAverages>> blocks_;   // of those whose averages have 8 bits
  std::vector<ParameterGroup> in_floats_, in_blocks_;  // the groups, divided
};

/// Stochastic gradient descent with momentum as in torch.optim.SGD (no dampening; the weight
/// decay is added to the gradient). State: momentum_buffer, none when momentum is 0.
class Sgd : public Optimizer {
 public:
  Sgd(TrainedParameters trained, const OptimizerConfig& config);

  std::vector<NamedTensor> state() const override;

 protected:
  bool update(double learning_rate, const torch::Tensor& found_inf, const torch::Tensor& scale,
              const CopyOf& copy_of) override;

 private:
  void update_group(const ParameterGroup& group, double learning_rate,
                    const torch::Tensor& found_inf);

  OptimizerConfig config_;
  double momentum_;
  std::vector<torch::Tensor> buffers_;  // in the order of the parameters
};

}  // namespace ddp::train
