// Passes the outputs of a model's stages between their ranks, in passes without
// gradients.
#pragma once

#include <torch/torch.h>

namespace ddp::train {

class StageLinks {
 public:
  virtual ~StageLinks() = default;

  /// Receives the previous stage's output into `x`.
  virtual void receive(torch::Tensor& x) = 0;
  virtual void send(const torch::Tensor& x) = 0;
  /// Broadcasts the last stage's `x` to all ranks; there `x` has its shape and type.
  virtual void share(torch::Tensor& x) = 0;
};

}  // namespace ddp::train
