// Activation checkpointing (Chen et al., "Training deep nets with sublinear memory cost", 2016):
// what torch.utils.checkpoint does in Python.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

namespace ddp::train {

/// `forward(x)` without keeping what it computes: the backward pass runs it again, with the same
/// random numbers (of the default generator of x's device) and the same autocast.
/// `parameters`: every leaf that forward() reads and that needs a gradient.
torch::Tensor checkpoint(std::function<torch::Tensor(const torch::Tensor&)> forward,
                         const torch::Tensor& x, const std::vector<torch::Tensor>& parameters);

}  // namespace ddp::train
