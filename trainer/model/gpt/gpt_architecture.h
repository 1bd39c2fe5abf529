// The CausalArchitecture of GPT-2 and minGPT.
#pragma once

#include <memory>
#include <vector>

#include "trainer/config/model_config.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/load/pretrained_layout.h"
#include "trainer/model/load/size_keys.h"

namespace ddp::train {

std::unique_ptr<const CausalArchitecture> gpt_architecture();

/// See CausalArchitecture::layout().
WeightsLayout gpt_layout(const GptConfig& gpt, int64_t vocab_size, int64_t block_size);

/// Weights, gradients, optimizer, activations, logits, DDP buckets, snapshots. Those that are 0 are
/// left out.
std::vector<MemoryItem> memory_items(const Config& config, int64_t vocab_size,
                                     const ComputePlace& place);

/// The presets of gpt_config.model_type.
const std::vector<ModelPreset>& gpt_presets();

/// The layout of transformers' GPT2LMHeadModel and GPT2Model.
extern const PretrainedLayout kGpt2Layout;

}  // namespace ddp::train
