// Activation checkpointing (Chen et al., "Training deep nets with sublinear memory cost", 2016),
// the equivalent of torch.utils.checkpoint.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

namespace ddp::train {

/// Returns `forward(x)` without storing its intermediate results: the backward pass runs it again,
/// with the same random numbers (of the default generator of x's device) and the same autocast.
/// `parameters`: every leaf that forward() reads and that needs a gradient.
torch::Tensor checkpoint(std::function<torch::Tensor(const torch::Tensor&)> forward,
                         const torch::Tensor& x, const std::vector<torch::Tensor>& parameters);

}  // namespace ddp::train
