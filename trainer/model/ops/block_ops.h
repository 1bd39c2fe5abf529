// The operations of a transformer's block and loss, with their gradients. Each chooses its kernels:
// those of gpu_ops.h on a GPU under autocast to bfloat16, those of fused_ops.h and llama_ops.h on a
// CPU in float32, else torch's. Callers need not know where they run.
//
// `fused_cpu`: gpt_config.fused_cpu_kernels, whether a CPU's may be chosen.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "trainer/model/ops/fused_ops.h"
#include "trainer/model/ops/residual_stream.h"

namespace ddp::train::ops {

/// `x` in the type that norms and losses are computed in: float32, float64 where it is that.
torch::Tensor wide(const torch::Tensor& x);

/// The sum of a stream and its LayerNorm or RMSNorm.
Normed add_norm(const ResidualStream& stream, const NormWeights& norm);
/// RMSNorm over the last dimension, in the type of `x`.
torch::Tensor rms_norm(const torch::Tensor& x, const NormWeights& norm);

/// x [.., K], weight [N, K], bias [N] or undefined -> x weight^T + bias [.., N].
torch::Tensor linear(const torch::Tensor& x, const torch::Tensor& weight,
                     const torch::Tensor& bias);
/// linear() as queries, keys and values, each [.., heads, N / (3 heads)].
std::vector<torch::Tensor> linear_to_heads(const torch::Tensor& x, const torch::Tensor& weight,
                                           const torch::Tensor& bias, int64_t heads);
/// y [.., N] of such a product in these three parts.
std::vector<torch::Tensor> in_heads(const torch::Tensor& y, int64_t heads);
/// gelu(linear(x, weight, bias)); `tanh`: GPT-2's approximation.
torch::Tensor linear_gelu(const torch::Tensor& x, const torch::Tensor& weight,
                          const torch::Tensor& bias, bool tanh, bool fused_cpu);
/// cap tanh(x / cap)
torch::Tensor softcapped(const torch::Tensor& x, double cap);
/// silu(gate) * up
torch::Tensor swiglu(const torch::Tensor& gate, const torch::Tensor& up);

/// Dropout of [B, S, ...]; with divided `rows` of S, by this rank's part of the masks of all.
torch::Tensor dropout(const torch::Tensor& x_BSC, double p, const fused::Places& rows,
                      bool fused_cpu);

/// Returns the sum of the losses of rows of V logits and P - V further columns, and turns
/// `logits_nP` into its gradient, which is 0 in those columns and in rows of negative targets.
/// `smoothing`: the share of each target that all V classes get alike.
torch::Tensor cross_entropy_sum_(torch::Tensor& logits_nP, const torch::Tensor& targets_n,
                                 int64_t V, double smoothing = 0.0);

}  // namespace ddp::train::ops
