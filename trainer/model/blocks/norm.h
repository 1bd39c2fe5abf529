// LayerNorm and RMSNorm over the last dimension.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "trainer/model/ops/block_ops.h"

namespace ddp::train {

enum class NormKind {
  kLayer,      ///< LayerNorm.
  kRms,        ///< RMSNorm, without a bias.
  kOffsetRms,  ///< Gemma's: the factors are 1 + weight.
};

/// Weights are undefined until they are drawn or loaded.
class NormImpl : public torch::nn::Module {
 public:
  NormImpl(int64_t width, double epsilon, NormKind kind) : kind_(kind), epsilon_(epsilon) {
    weight_ = register_parameter("weight", torch::empty({width}));
    if (kind == NormKind::kLayer) bias_ = register_parameter("bias", torch::empty({width}));
  }

  /// Adds what is left of the stream, too.
  Normed forward(const ResidualStream& stream) const { return ops::add_norm(stream, weights()); }
  /// RMSNorm of single heads, [.., D], or of what a layer adds to the stream.
  torch::Tensor of(const torch::Tensor& x) const { return ops::rms_norm(x, weights()); }

 private:
  NormWeights weights() const {
    return {kind_ == NormKind::kOffsetRms ? weight_ + 1.0 : weight_, bias_, epsilon_};
  }

  torch::Tensor weight_, bias_;
  NormKind kind_;
  double epsilon_;
};
TORCH_MODULE(Norm);

}  // namespace ddp::train
