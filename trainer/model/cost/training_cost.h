// Estimates the cost of training any model, arithmetically. Does not use LibTorch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/param_groups.h"
#include "trainer/config/trainer_config.h"

namespace ddp::train {

struct Config;

/// Parameter count of a part of a model; 0: shared with another part.
struct ParameterPart {
  std::string name;
  int64_t count = 0;
};
int64_t total_of(const std::vector<ParameterPart>& parts);
int64_t count_of(const std::vector<ParameterShape>& parameters);

struct ModelSize {
  int64_t parameters = 0;  ///< Without position embeddings.
  int64_t layers = 0;
  int64_t channels = 0;
  int64_t block = 0;  ///< Tokens per sequence.
};

/// The weight and the bias of a linear layer or norm; `name` without the last dot.
void add_layer(std::vector<ParameterShape>& shapes, const std::string& name,
               std::vector<int64_t> sizes, ParameterRole role);

/// Floating-point operations of forward and backward pass for one token: 6 N for the matrices and
/// 12 L C T for attention (PaLM, arXiv 2204.02311, appendix B), as nanoGPT's estimate_mfu counts
/// them. Recomputation, dropout and the optimizer do not count.
inline double flops_per_token(const ModelSize& size) {
  constexpr double kPerParameter = 6.0;
  constexpr double kPerAttention = 12.0;
  const auto attention = static_cast<double>(size.layers) * static_cast<double>(size.channels) *
                         static_cast<double>(size.block);
  return kPerParameter * static_cast<double>(size.parameters) + kPerAttention * attention;
}

/// The device and the group that a rank computes on.
struct ComputePlace {
  bool cuda = false;
  int64_t world_size = 1;
  int64_t stage = 0;  ///< Stage of a pipeline.
};

enum class MemoryKind { kDevice, kHost, kShared };

/// One kind of memory of a rank, in bytes at the peak of a step.
struct MemoryItem {
  std::string name;
  int64_t bytes = 0;
  MemoryKind kind = MemoryKind::kDevice;  ///< On the CPU, device memory is host memory as well.
  bool main_rank_only = false;
  int64_t reused = 0;  ///< Bytes in memory that activations have left by then.
};

/// Whether an item is in the limiting memory: the CPU's holds everything, a GPU's only what is
/// computed with.
inline bool counts(const MemoryItem& item, bool cuda) {
  return !cuda || item.kind == MemoryKind::kDevice;
}

/// Bytes in the limiting memory of the rank that needs most.
inline int64_t bytes_of_rank(const std::vector<MemoryItem>& items, bool cuda) {
  int64_t bytes = 0;
  for (const MemoryItem& item : items) bytes += counts(item, cuda) ? item.bytes - item.reused : 0;
  return bytes;
}

/// Micro-batches of the rank that computes most of them in a step.
inline int64_t micro_batches_of_rank(const TrainerConfig& config, int64_t world_size) {
  if (!config.global_batch_size) return config.grad_accumulation_steps;
  const int64_t all = *config.global_batch_size / std::max<int64_t>(1, config.batch_size);
  return std::max<int64_t>(1, (all + world_size - 1) / world_size);
}

/// The last layer of a causal model in one micro-batch; numbers of elements as double: no overflow.
struct LossSizes {
  double tokens;
  double width;
  double vocab_size;
  double compute;  ///< Bytes of an element in matrix products.
  AutoNumber chunk_size;
  bool divided = false;   ///< Ranks share the vocabulary; the loss is computed in chunks.
  double finished = 1.0;  ///< Micro-batches in flight that wait for their backward pass.
};
/// Bytes of the logits and of what CausalModel::loss() makes of them.
double logit_bytes(const LossSizes& sizes);

/// Returns the memory items of a rank that trains these parameters: weights; gradients, optimizer
/// state and buckets of the trained ones; snapshots; and `of_model`, whose "activations" and
/// "logits" give way to gradients in buckets. With lora.rank or prompt_tuning only what they add is
/// trained. Items of 0 bytes are omitted.
std::vector<MemoryItem> rank_items(const Config& config,
                                   const std::vector<ParameterShape>& parameters,
                                   const ComputePlace& place,
                                   const std::vector<MemoryItem>& of_model);

}  // namespace ddp::train
