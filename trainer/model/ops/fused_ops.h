// The operations of a block on a CPU in one pass each, with their gradients: autograd functions
// around the kernels of model/ops/cpu/. The sums differ from torch's in their last bits, the
// dropout masks differ; gpt_config.fused_cpu_kernels is the switch.
//
// Where dropout is on, each call draws one number from the default CPU generator, which seeds its
// mask: the run's rule that masks are functions of (seed, step, micro-batch) holds, and so does a
// recomputation from a saved state of the generator. None of them can be differentiated twice.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>

#include "trainer/model/ops/cpu/kernels.h"

namespace ddp::train::fused {

using cpu::Places;

/// Whether `x` can be an argument here: float32 on a CPU.
bool takes(const torch::Tensor& x);
/// Also of functions with a matrix product, which do not know autocast.
bool takes_products(const torch::Tensor& x);
/// Whether causal_attention() is made for sequences of that length, heads of that size.
bool takes_attention(int64_t length, int64_t head_dim);

/// x [.., K], weight [N, K], bias [N] -> gelu(x weight^T + bias) [.., N]; `tanh`: GPT-2's
/// approximation.
torch::Tensor linear_gelu(const torch::Tensor& x, const torch::Tensor& weight,
                          const torch::Tensor& bias, bool tanh);

/// residual + dropout(x weight^T + bias) [.., N].
torch::Tensor linear_dropout_add(const torch::Tensor& x, const torch::Tensor& weight,
                                 const torch::Tensor& bias,
                                 const std::optional<torch::Tensor>& residual, double p);

/// [B, T, 3 C], query, key and value in a row -> [B, T, C]; position t sees positions <= t only.
/// `places`: of the heads.
torch::Tensor causal_attention(const torch::Tensor& qkv, int64_t heads, double p,
                               const Places& places = {});

/// `places`: of the rows.
torch::Tensor dropout(const torch::Tensor& x, double p, const Places& places = {});

/// residual + dropout(x).
torch::Tensor dropout_add(const torch::Tensor& x, const torch::Tensor& residual, double p);

/// residual + dropout(x + bias).
torch::Tensor bias_dropout_add(const torch::Tensor& x, const torch::Tensor& bias,
                               const torch::Tensor& residual, double p, const Places& places = {});

}  // namespace ddp::train::fused
