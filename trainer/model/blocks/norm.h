// LayerNorm and RMSNorm over the last dimension.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "trainer/model/ops/block_ops.h"

namespace ddp::train {

/// LayerNorm, or RMSNorm without a bias. Weights are undefined until they are drawn or loaded.
class NormImpl : public torch::nn::Module {
 public:
  NormImpl(int64_t width, double epsilon, bool with_bias) : epsilon_(epsilon) {
    weight_ = register_parameter("weight", torch::empty({width}));
    if (with_bias) bias_ = register_parameter("bias", torch::empty({width}));
  }

  /// Adds what is left of the stream, too.
  Normed forward(const ResidualStream& stream) const { return ops::add_norm(stream, weights()); }
  /// RMSNorm of single heads, [.., D].
  torch::Tensor of_heads(const torch::Tensor& x) const { return ops::rms_norm(x, weights()); }

 private:
  NormWeights weights() const { return {weight_, bias_, epsilon_}; }

  torch::Tensor weight_, bias_;
  double epsilon_;
};
TORCH_MODULE(Norm);

}  // namespace ddp::train
