// The operations of a transformer's block on a GPU under autocast to bfloat16, with their
// gradients: autograd functions around the kernels of gpu_kernels.h and torch's products. Values
// are rounded to bfloat16 where autocast rounds them, and the residual stream stays in float32;
// sums are taken in another order, and GELU's error function is exact to 1.5e-7. Gradients of
// weights are not rounded to bfloat16 first.
// trainer_config.fused_gpu_kernels is the switch. None of them can be differentiated twice.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "trainer/model/ops/residual_stream.h"

namespace ddp::train::gpu {

/// Whether add_norm() takes rows of the residual stream `x`, float32.
bool takes_norm(const torch::Tensor& x);
/// Whether linear() and linear_gelu() take `x`, bfloat16.
bool takes_product(const torch::Tensor& x);
/// Whether linear_to_heads() takes them.
bool takes_heads(const torch::Tensor& x, const torch::Tensor& weight);

/// Whether fused_swiglu() takes `gate` and `up`, bfloat16.
bool takes_swiglu(const torch::Tensor& gate, const torch::Tensor& up);
/// Whether rotated() takes heads `q` and `k` [.., D], bfloat16, and angles `cos` [.., D / 2].
bool takes_rotation(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& cos);

/// residual [.., C] + branch [.., C], bfloat16; without a branch the residual itself, to be used
/// in its place: its gradient and the norm's are added in one pass.
Normed add_norm(const torch::Tensor& residual, const std::optional<torch::Tensor>& branch,
                const NormWeights& norm);

/// x [.., K], weight [N, K], bias [N] or undefined -> x weight^T + bias, bfloat16 [.., N].
torch::Tensor linear(const torch::Tensor& x, const torch::Tensor& weight,
                     const torch::Tensor& bias);

/// linear() as queries, keys and values, each [.., heads, N / (3 heads)]. One pass joins their
/// gradients and sums them up for the bias.
std::vector<torch::Tensor> linear_to_heads(const torch::Tensor& x, const torch::Tensor& weight,
                                           const torch::Tensor& bias, int64_t heads);

/// gelu(linear(x, weight, bias)); `tanh`: GPT-2's approximation. One pass backward if N is a
/// multiple of 8.
torch::Tensor linear_gelu(const torch::Tensor& x, const torch::Tensor& weight,
                          const torch::Tensor& bias, bool tanh);

/// silu(gate) up, rounded once.
torch::Tensor fused_swiglu(const torch::Tensor& gate, const torch::Tensor& up);

/// The query and the key heads turned by their positions: angles [T, D / 2] or [B, 1, T, D / 2].
std::pair<torch::Tensor, torch::Tensor> rotated(const torch::Tensor& q_BTHD,
                                                const torch::Tensor& k_BTKD,
                                                const torch::Tensor& cos, const torch::Tensor& sin);

}  // namespace ddp::train::gpu
