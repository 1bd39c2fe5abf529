// Autoregressive sampling.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "trainer/model/gpt.h"

namespace ddp::train {

struct SamplingOptions {
  int64_t max_new_tokens = 200;
  double temperature = 1.0;      ///< > 0; logits are divided by it.
  std::optional<int64_t> top_k;  ///< Only the k most likely tokens can be drawn.
  bool greedy =
      false;  ///< Always the most likely token; temperature, top_k and seed have no effect.
  uint64_t seed = 0;
};

/// Continues `prompt` (at least one token) and calls `emit` with each new token as soon as it is
/// drawn. Contexts longer than the model's block_size are cropped to their end. Puts the model into
/// eval mode.
void generate(GPT& model, std::vector<int32_t> prompt, const SamplingOptions& options,
              const std::function<void(int64_t)>& emit);

}  // namespace ddp::train
