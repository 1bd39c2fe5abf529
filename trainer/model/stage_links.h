// How the stages of a model that several ranks have hand on what they compute, in passes without
// gradients.
#pragma once

#include <torch/torch.h>

namespace ddp::train {

class StageLinks {
 public:
  virtual ~StageLinks() = default;

  /// The output of the stage before, into `x`.
  virtual void receive(torch::Tensor& x) = 0;
  virtual void send(const torch::Tensor& x) = 0;
  /// Gives all ranks what the last stage's has in `x`; elsewhere `x` has its shape and type.
  virtual void share(torch::Tensor& x) = 0;
};

}  // namespace ddp::train
