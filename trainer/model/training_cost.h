// What training a language model takes, by arithmetic alone: parameters and memory; and what every
// model has in common there. No LibTorch in it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/config/param_groups.h"

namespace ddp::train {

/// Parameters of a part of a model; 0: they are those of another part.
struct ParameterPart {
  std::string name;
  int64_t count = 0;
};
int64_t total_of(const std::vector<ParameterPart>& parts);

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

ParameterRole gpt_role(std::string_view name, int64_t dimensions);
/// As GPT::model_parameters() lists them.
std::vector<ParameterShape> gpt_parameter_shapes(const GptConfig& gpt, int64_t vocab_size,
                                                 int64_t block_size);
/// The weight and the bias of a linear layer or norm; `name` without the last dot.
void add_layer(std::vector<ParameterShape>& shapes, const std::string& name,
               std::vector<int64_t> sizes, ParameterRole role);

ParameterCounts parameter_counts(const GptConfig& gpt, int64_t vocab_size, int64_t block_size);

/// Where a rank computes.
struct ComputePlace {
  bool cuda = false;
  int64_t world_size = 1;
};

enum class MemoryKind { kDevice, kHost, kShared };

/// One kind of memory of a rank, bytes at the largest moment of a step.
struct MemoryItem {
  std::string name;
  int64_t bytes = 0;
  MemoryKind kind = MemoryKind::kDevice;  ///< On the CPU, device memory is the host's, too.
  bool main_rank_only = false;
};

/// What a training of these parameters keeps whatever the model is: weights, and of those that are
/// not frozen gradients, optimizer, DDP buckets; snapshots.
std::vector<MemoryItem> state_items(const Config& config,
                                    const std::vector<ParameterShape>& parameters,
                                    const ComputePlace& place);
/// `items` with `more` behind the optimizer's, without those of 0 bytes.
std::vector<MemoryItem> with_items(std::vector<MemoryItem> items, std::vector<MemoryItem> more);

/// Weights, gradients, optimizer, activations, logits, DDP buckets, snapshots. Those that are 0 are
/// left out.
std::vector<MemoryItem> memory_items(const Config& config, int64_t vocab_size,
                                     const ComputePlace& place);

}  // namespace ddp::train
