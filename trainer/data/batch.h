// One micro-batch of a rank.
#pragma once

#include <torch/torch.h>

#include <memory>

namespace ddp::train {

/// [batch_size, ...] each, rows as the SampleSpec of their source says.
struct Batch {
  torch::Tensor inputs;
  torch::Tensor targets;
  std::shared_ptr<const Batch> host = nullptr;  ///< What to() copied to another device.

  /// The same batch in host memory. Counts, positions and shapes that depend on values are computed
  /// from it: read from a GPU, they would make the host wait for it in every step.
  const Batch& on_host() const { return host ? *host : *this; }

  Batch to(torch::Device device) const {
    if (inputs.device() == device) return *this;
    return {inputs.to(device, /*non_blocking=*/true), targets.to(device, /*non_blocking=*/true),
            std::make_shared<const Batch>(on_host())};
  }
};

}  // namespace ddp::train
