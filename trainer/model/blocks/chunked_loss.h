// Cross-entropy of a linear output layer without all of its logits in memory at a time.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "trainer/model/blocks/tensor_parallel.h"

namespace ddp::train {

/// `weight_VC` with `padding` rows of zeros appended, in the type that autocast computes in;
/// itself for a padding of 0. Products with it have rows of a length that suits tensor cores,
/// of which the first V numbers count; the parameter, its gradient and snapshots are
/// unaffected.
torch::Tensor padded_table(const torch::Tensor& weight_VC, int64_t padding);

/// A product of low rank, x_NR weight_VR^T; undefined: none.
struct LowRankPair {
  torch::Tensor x_NR;
  torch::Tensor weight_VR;
};

/// Sum of the negative log-likelihoods, in nats, of targets_N under softmax(x_NC weight_VC^T),
/// with a `softcap` of softmax(softcap tanh(x_NC weight_VC^T / softcap)); a float32 scalar. Targets
/// of -1 do not count. The products are those with padded_table(). Only `chunk` rows of logits
/// exist at a time, and no backward pass needs them: the forward pass computes the gradients, too
/// (as Liger Kernel does: Hsu et al., "Liger Kernel: efficient Triton kernels for LLM training",
/// 2024). `share`: weight_VC has the rows of this rank's tokens; the sum is that of one process,
/// the gradient of x_NC this rank's part. `smoothing`: as torch.nn.CrossEntropyLoss's
/// label_smoothing; not with a share. `adapter`: added to the logits before the softcap.
torch::Tensor chunked_cross_entropy_sum(const torch::Tensor& x_NC, const torch::Tensor& weight_VC,
                                        const torch::Tensor& targets_N, int64_t chunk,
                                        int64_t padding = 0, const VocabularyShare& share = {},
                                        double softcap = 0.0, double smoothing = 0.0,
                                        const LowRankPair& adapter = {});

/// Whether that takes no more memory than the logits in the type that autocast computes in, and one
/// pass over them, so that a loss in one piece is better computed by it, too.
bool is_cross_entropy_fused(const torch::Tensor& weight_VC, int64_t padding);

}  // namespace ddp::train
