// A table of tokens that can have a low-rank adapter (lora.h).
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>

#include "trainer/model/blocks/adaptable_linear.h"

namespace ddp::train {

/// The weight is undefined until it is drawn or loaded. The rows of the adapter are added to those
/// of the table; what else uses the weight, as a tied output layer does, has none of it.
class AdaptableEmbeddingImpl : public torch::nn::EmbeddingImpl, public Adaptable {
 public:
  AdaptableEmbeddingImpl(int64_t tokens, int64_t width);

  /// int64 [..] -> [.., width].
  torch::Tensor forward(const torch::Tensor& idx);

  /// Adds lora_embedding_A [rank, tokens], zeros, and lora_embedding_B [width, rank], normal.
  void add_adapter(const LoraConfig& lora, const std::optional<at::Generator>& generator) override;
  bool plain() const override { return !lora_embedding_A.defined(); }
  torch::Tensor merged_weight() const override;

 private:
  torch::Tensor lora_embedding_A, lora_embedding_B;
  double scale_ = 1.0;
};
TORCH_MODULE(AdaptableEmbedding);

}  // namespace ddp::train
