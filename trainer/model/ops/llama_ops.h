// The operations of Llama's block on a CPU in float32, with their gradients: autograd functions
// around the kernels of cpu/kernels.h, each in one pass over memory. None of them can be
// differentiated twice.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>

#include "trainer/model/ops/residual_stream.h"

namespace ddp::train::fused {

/// As gpu::add_norm(), of RMSNorm and with all of it in float32: residual + branch and its norm;
/// without a branch the residual itself, to be used in its place.
Normed add_rms_norm(const torch::Tensor& residual, const std::optional<torch::Tensor>& branch,
                    const NormWeights& norm);

/// silu(gate) * up
torch::Tensor swiglu(const torch::Tensor& gate, const torch::Tensor& up);

/// Heads [B, T, .., D] and the angles of positions, [T, D / 2] or [B, 1, T, D / 2].
struct RotaryInput {
  torch::Tensor q_BTHD, k_BTKD, v_BTKD;
  torch::Tensor cos, sin;
};

/// [B, T, H + 2 K repeat, D]: the query heads and the key heads turned by their positions, and the
/// value heads; each of the last two `repeat` times in a row.
torch::Tensor rotated_heads(const RotaryInput& input, int64_t repeat);

}  // namespace ddp::train::fused
