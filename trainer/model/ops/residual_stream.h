// The residual stream of a transformer between its layers.
#pragma once

#include <torch/torch.h>

#include <optional>

namespace ddp::train {

/// The residual stream, and the output of the last layer, which the next norm adds in passing.
struct ResidualStream {
  torch::Tensor x;
  torch::Tensor branch{};  ///< Undefined: nothing is left to add.

  torch::Tensor sum() const { return branch.defined() ? x + branch : x; }
  std::optional<torch::Tensor> left() const {
    return branch.defined() ? std::optional(branch) : std::nullopt;
  }
};

/// The input of a layer: the stream with everything added, and its norm.
struct Normed {
  torch::Tensor sum;  ///< [.., C]
  torch::Tensor y;    ///< [.., C], in the type that products take.
};

struct NormWeights {
  torch::Tensor weight;
  torch::Tensor bias{};  ///< Undefined: RMSNorm.
  double epsilon = 0.0;
};

}  // namespace ddp::train
