// From logits to the next token.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>

namespace ddp::train {

struct SamplingOptions {
  int64_t max_new_tokens = 200;
  double temperature = 1.0;         ///< > 0; scores are divided by it.
  std::optional<int64_t> top_k;     ///< Only the k most likely tokens can be drawn.
  double top_p = 1.0;               ///< The fewest tokens whose probabilities reach it, 0 to 1.
  double min_p = 0.0;               ///< At least this share of the likeliest token's probability.
  double repetition_penalty = 1.0;  ///< > 0; above 1 makes tokens of the context less likely.
  bool greedy = false;              ///< Always the most likely token, after the penalty alone.
  uint64_t seed = 0;
  bool cuda_graphs = false;  ///< See Decoder. The current stream is none of CUDA's default ones.
};

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
