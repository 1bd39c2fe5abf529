// Estimates a GPT's parameters and training memory arithmetically. Does not use LibTorch.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/config/param_groups.h"
#include "trainer/model/cost/training_cost.h"

namespace ddp::train {

/// Number of parameters by part.
struct ParameterCounts {
  int64_t token_embedding = 0;  ///< V C, which a tied head shares.
  int64_t position_embedding = 0;
  int64_t blocks = 0;
  int64_t final_norm = 0;
  int64_t head = 0;  ///< 0 when tied.

  int64_t total() const {
    return token_embedding + position_embedding + blocks + final_norm + head;
  }
  std::vector<ParameterPart> parts() const;
};

ParameterCounts parameter_counts(const GptConfig& gpt, int64_t vocab_size, int64_t block_size);

/// In the order of CausalModel::model_parameters().
std::vector<ParameterShape> gpt_parameter_shapes(const GptConfig& gpt, int64_t vocab_size,
                                                 int64_t block_size);

/// Weights, gradients, optimizer, activations, logits, DDP buckets, snapshots. Those that are 0 are
/// left out.
std::vector<MemoryItem> memory_items(const Config& config, int64_t vocab_size,
                                     const ComputePlace& place);

}  // namespace ddp::train
