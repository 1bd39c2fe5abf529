#include "trainer/model/blocks/fused_adapter.h"

#include <cmath>

#include "trainer/model/blocks/uninitialized_layers.h"
#include "trainer/model/lora.h"

namespace ddp::train {

void FusedAdapterImpl::add_adapter(const LoraConfig& lora,
                                   const std::optional<at::Generator>& generator) {
  int64_t out = 0;
  for (const Layer& layer : layers_) out += layer.out;
  lora_A = register_module("lora_A", uninitialized_linear(in_, lora.rank));
  lora_B = register_module("lora_B", uninitialized_linear(lora.rank, out));
  lora_dropout = register_module("lora_dropout", torch::nn::Dropout(lora.dropout));
  lora_dropout->train(is_training());
  scale_ = adapter_scale(lora);
  if (!generator) return;
  const double bound = 1.0 / std::sqrt(static_cast<double>(in_));
  const torch::NoGradGuard no_grad;
  lora_A->weight.uniform_(-bound, bound, generator);
  lora_B->weight.zero_();
}

torch::Tensor FusedAdapterImpl::merged_weight() const {
  const torch::NoGradGuard no_grad;
  return torch::mm(lora_B->weight, lora_A->weight) * scale_;
}

void FusedAdapterImpl::add_to(const torch::Tensor& x,
                              std::initializer_list<torch::Tensor*> outputs) {
  if (plain()) return;
  const auto update = lora_B(lora_A(lora_dropout(x)) * scale_);
  int64_t first = 0;
  for (torch::Tensor* const output : outputs) {
    *output = *output + update.narrow(-1, first, output->size(-1));
    first += output->size(-1);
  }
}

}  // namespace ddp::train
