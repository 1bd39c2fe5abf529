// From logits to the next token.
#pragma once

#include <torch/torch.h>

#include "trainer/model/sampling_options.h"

namespace ddp::train {

/// The scores that tokens are drawn from, -inf for those that cannot be: float32 [B, V], up to a
/// constant per row.
///
/// Formulas and order are those of transformers' generate(): repetition penalty (Keskar et al.,
/// "CTRL", 2019), temperature, top-k (Fan et al., 2018), top-p (Holtzman et al., 2020), min-p
/// (Nguyen et al., 2024). `seen_BV`, bool: the tokens of each row's context; may be undefined
/// without a penalty.
torch::Tensor process_logits(const torch::Tensor& logits_BV, const torch::Tensor& seen_BV,
                             const SamplingOptions& options);

/// The token at which the cumulated probability of softmax(scores) exceeds draws_B, numbers in
/// [0, 1), float64: int64 [B].
torch::Tensor draw_tokens(const torch::Tensor& scores_BV, const torch::Tensor& draws_B);

}  // namespace ddp::train
