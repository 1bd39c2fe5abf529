// What training takes whatever the model is, by arithmetic alone. No LibTorch in it.
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
int64_t count_of(const std::vector<ParameterShape>& parameters);

struct ModelSize {
  int64_t parameters = 0;  ///< Without position embeddings.
  int64_t layers = 0;
  int64_t channels = 0;
  int64_t block = 0;  ///< Tokens of a sequence.
};

/// The weight and the bias of a linear layer or norm; `name` without the last dot.
void add_layer(std::vector<ParameterShape>& shapes, const std::string& name,
               std::vector<int64_t> sizes, ParameterRole role);

/// Floating-point operations of forward and backward pass for one token: 6 N for the matrices and
/// 12 L C T for attention (PaLM, arXiv 2204.02311, appendix B), as nanoGPT's estimate_mfu counts
/// them. What is computed again, dropout and the optimizer do not count.
inline double flops_per_token(const ModelSize& size) {
  constexpr double kPerParameter = 6.0;
  constexpr double kPerAttention = 12.0;
  const auto attention = static_cast<double>(size.layers) * static_cast<double>(size.channels) *
                         static_cast<double>(size.block);
  return kPerParameter * static_cast<double>(size.parameters) + kPerAttention * attention;
}

/// Where a rank computes.
struct ComputePlace {
  bool cuda = false;
  int64_t world_size = 1;
  int64_t stage = 0;  ///< Stage of a pipeline.
};

enum class MemoryKind { kDevice, kHost, kShared };

/// One kind of memory of a rank, bytes at the largest moment of a step.
struct MemoryItem {
  std::string name;
  int64_t bytes = 0;
  MemoryKind kind = MemoryKind::kDevice;  ///< On the CPU, device memory is the host's, too.
  bool main_rank_only = false;
};

/// The last layer of a causal model in one micro-batch; numbers of elements as double: no overflow.
struct LossSizes {
  double tokens;
  double width;
  double vocab_size;
  double compute;  ///< Bytes of an element in matrix products.
  AutoNumber chunk_size;
  bool divided = false;   ///< Ranks share the vocabulary: the loss is computed in chunks.
  double finished = 1.0;  ///< Micro-batches that wait for their backward pass with it.
};
/// Bytes of the logits and of what CausalModel::loss() makes of them.
double logit_bytes(const LossSizes& sizes);

/// What a rank that trains these parameters holds: weights, and of those that are not frozen
/// gradients, optimizer, buckets; snapshots; and `of_model`, of which gradients in buckets take the
/// place of "activations" and "logits". With lora.rank the model's parameters are weights only, and
/// those of the adapters are trained. Items of 0 bytes are left out.
std::vector<MemoryItem> rank_items(const Config& config,
                                   const std::vector<ParameterShape>& parameters,
                                   const ComputePlace& place,
                                   const std::vector<MemoryItem>& of_model);

}  // namespace ddp::train
