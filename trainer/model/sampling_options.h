// How the next token is drawn.
#pragma once

#include <cstdint>
#include <optional>

namespace ddp::train {

struct SamplingOptions {
  int64_t max_new_tokens = 200;
  double temperature = 1.0;         ///< > 0; scores are divided by it.
  std::optional<int64_t> top_k{};   ///< Only the k most likely tokens can be drawn.
  double top_p = 1.0;               ///< The fewest tokens whose probabilities reach it, 0 to 1.
  double min_p = 0.0;               ///< At least this share of the likeliest token's probability.
  double repetition_penalty = 1.0;  ///< > 0; above 1 makes tokens of the context less likely.
  bool greedy = false;              ///< Always the most likely token, after the penalty alone.
  uint64_t seed = 0;
  bool cuda_graphs = false;  ///< See Decoder. The current stream is none of CUDA's default ones.
};

}  // namespace ddp::train
