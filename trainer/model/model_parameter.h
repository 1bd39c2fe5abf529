#pragma once

#include <torch/torch.h>

#include <string>

namespace ddp::train {

/// One parameter as the optimizer and the snapshot see it.
struct ModelParameter {
  std::string name;
  torch::Tensor tensor;
  bool decay =
      false;  ///< Weight decay applies: weights of linear layers, not biases, norms and embeddings.
};

}  // namespace ddp::train
