// One micro-batch of a rank.
#pragma once

#include <torch/torch.h>

namespace ddp::train {

/// [batch_size, ...] each, rows as the SampleSpec of their source says.
struct Batch {
  torch::Tensor inputs;
  torch::Tensor targets;

  Batch to(torch::Device device) const {
    return {inputs.to(device, /*non_blocking=*/true), targets.to(device, /*non_blocking=*/true)};
  }
};

}  // namespace ddp::train
