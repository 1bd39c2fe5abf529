// Copies small tensors from the host to a device.
#pragma once

#include <torch/torch.h>

namespace ddp::train {

/// Copies `host` to `device`; from page-locked memory to a GPU, so that the host does not wait.
inline torch::Tensor to_device(const torch::Tensor& host, torch::Device device) {
  if (!device.is_cuda()) return host.to(device);
  return host.pin_memory().to(device, /*non_blocking=*/true);
}

}  // namespace ddp::train
