// Cross-entropy of a linear output layer without all of its logits in memory at a time.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace ddp::train {

/// Sum of the negative log-likelihoods, in nats, of targets_N under softmax(x_NC weight_VC^T); a
/// float32 scalar. Targets of -1 do not count. Only `chunk` rows of logits exist at a time, and no
/// backward pass needs them: the forward pass computes the gradients, too (as Liger Kernel does:
/// Hsu et al., "Liger Kernel: efficient Triton kernels for LLM training", 2024).
torch::Tensor chunked_cross_entropy_sum(const torch::Tensor& x_NC, const torch::Tensor& weight_VC,
                                        const torch::Tensor& targets_N, int64_t chunk);

}  // namespace ddp::train
