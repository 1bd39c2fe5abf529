// The norm of a model's gradients, independent of which rank holds which part.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "trainer/parallel/strategy/shard_plan.h"

namespace ddp::train {

/// Sums of squares in float64, on the gradients' device: one for each block of kNormBlock elements,
/// which one rank sums up, of each gradient (the last one of a gradient may be shorter), in their
/// order. float32 sums are off by 0.3 % at the size of GPT-2's embedding. The same bits for any
/// number of threads and any CPU.
torch::Tensor block_sums_of_squares(const std::vector<torch::Tensor>& gradients);

/// The root of the sum of all blocks, added in order; a float32 scalar on the gradients' device.
/// NaN or Inf if a gradient has one. Does not wait for a GPU.
torch::Tensor gradient_norm(const std::vector<torch::Tensor>& gradients);

/// The same for sums returned by block_sums_of_squares().
torch::Tensor norm_of_block_sums(const torch::Tensor& sums);

}  // namespace ddp::train
