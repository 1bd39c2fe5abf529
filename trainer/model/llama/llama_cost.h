// Estimates a Llama's parameters and training cost arithmetically. Does not use LibTorch.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/model/cost/training_cost.h"
#include "trainer/model/llama/llama_config.h"
#include "trainer/model/load/weights_layout.h"

namespace ddp::train {

struct Config;

/// In the order of CausalModel::model_parameters().
WeightsLayout llama_layout(const LlamaShape& shape, int64_t vocab_size);

/// 6 for each weight that a token is multiplied by, and 12 L H Q T of attention: a token embedding
/// that no head shares is looked up, not multiplied.
double llama_flops_per_token(const LlamaShape& shape, int64_t vocab_size, int64_t block_size);

/// Weights, gradients, optimizer, activations, logits, DDP buckets, snapshots; without those of 0.
std::vector<MemoryItem> llama_memory_items(const Config& config, int64_t vocab_size,
                                           const ComputePlace& place);

}  // namespace ddp::train
