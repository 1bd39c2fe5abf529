// Estimates a GPT's training memory arithmetically. Does not use LibTorch.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/model/cost/training_cost.h"

namespace ddp::train {

struct Config;

/// Weights, gradients, optimizer, activations, logits, DDP buckets, snapshots. Those that are 0 are
/// left out.
std::vector<MemoryItem> memory_items(const Config& config, int64_t vocab_size,
                                     const ComputePlace& place);

}  // namespace ddp::train
