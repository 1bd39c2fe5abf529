#include "trainer/model/blocks/adaptable_embedding.h"

#include "trainer/model/lora.h"

namespace ddp::train {

AdaptableEmbeddingImpl::AdaptableEmbeddingImpl(int64_t tokens, int64_t width)
    : torch::nn::EmbeddingImpl(
          torch::nn::EmbeddingOptions(tokens, width)._weight(torch::empty({tokens, width}))) {}

torch::Tensor AdaptableEmbeddingImpl::forward(const torch::Tensor& idx) {
  const auto rows = torch::nn::EmbeddingImpl::forward(idx);
  if (plain()) return rows;
  const auto reduced = at::embedding(lora_embedding_A.t(), idx);
  return rows + at::linear(reduced, lora_embedding_B) * scale_;
}

void AdaptableEmbeddingImpl::add_adapter(const LoraConfig& lora,
                                         const std::optional<at::Generator>& generator) {
  lora_embedding_A = register_parameter("lora_embedding_A",
                                        torch::empty({lora.rank, weight.size(0)}, weight.device()));
  lora_embedding_B = register_parameter("lora_embedding_B",
                                        torch::empty({weight.size(1), lora.rank}, weight.device()));
  scale_ = adapter_scale(lora);
  if (!generator) return;
  const torch::NoGradGuard no_grad;
  lora_embedding_A.zero_();
  lora_embedding_B.normal_(0.0, 1.0, generator);
}

torch::Tensor AdaptableEmbeddingImpl::merged_weight() const {
  const torch::NoGradGuard no_grad;
  if (plain()) return weight.clone();
  return weight + torch::mm(lora_embedding_B, lora_embedding_A).t() * scale_;
}

}  // namespace ddp::train
