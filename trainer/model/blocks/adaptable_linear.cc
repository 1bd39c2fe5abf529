#include "trainer/model/blocks/adaptable_linear.h"

#include <cmath>
#include <utility>

#include "trainer/model/blocks/uninitialized_layers.h"
#include "trainer/model/lora.h"
#include "trainer/model/ops/block_ops.h"

namespace ddp::train {

AdaptableLinearImpl::AdaptableLinearImpl(int64_t in, int64_t out, bool with_bias)
    : torch::nn::LinearImpl(torch::nn::LinearOptions(1, 1).bias(with_bias)) {
  options.in_features(in).out_features(out);
  weight.set_data(torch::empty({out, in}));
  if (with_bias) bias.set_data(torch::empty({out}));
}

torch::Tensor AdaptableLinearImpl::forward(const torch::Tensor& x) {
  if (!adapted()) return product_with_weight(x, bias);
  // The sum takes the place of the term that was there first: small tensors that stay, nodes of the
  // graph included, would cut up the place of one that is freed.
  const auto update = [&] { return lora_B(reduced(x)); };
  if (quantized_.defined()) return product_with_weight(x, bias).add_(update());
  return update().add_(product_with_weight(x, bias));
}

torch::Tensor AdaptableLinearImpl::product_with_weight(const torch::Tensor& x,
                                                       const torch::Tensor& with_bias) const {
  return quantized_.defined() ? quantized_linear(x, quantized_, with_bias)
                              : ops::linear(x, weight, with_bias);
}

void AdaptableLinearImpl::tie(const torch::Tensor& table) {
  parameters_.erase("weight");
  weight = table;
}

void AdaptableLinearImpl::hold(QuantizedWeight held) {
  quantized_ = std::move(held);
  parameters_.erase("weight");
  weight = torch::Tensor();
  register_buffer("codes", quantized_.codes);
  register_buffer("absmax", quantized_.absmax);
  if (!quantized_.absmax_scales.defined()) return;
  register_buffer("absmax_scales", quantized_.absmax_scales);
  register_buffer("absmax_mean", quantized_.absmax_mean);
}

void AdaptableLinearImpl::add_adapter(const LoraConfig& lora,
                                      const std::optional<at::Generator>& generator) {
  const bool whole = weight.defined();
  const int64_t in = whole ? weight.size(1) : quantized_.columns();
  const int64_t out = whole ? weight.size(0) : quantized_.rows();
  const auto device = whole ? weight.device() : quantized_.codes.device();
  lora_A = register_module("lora_A", uninitialized_linear(in, lora.rank));
  lora_B = register_module("lora_B", uninitialized_linear(lora.rank, out));
  lora_dropout = register_module("lora_dropout", torch::nn::Dropout(lora.dropout));
  scale_ = adapter_scale(lora);
  if (generator) {
    // torch.nn.init.kaiming_uniform_(a=sqrt(5))
    const double bound = 1.0 / std::sqrt(static_cast<double>(in));
    const torch::NoGradGuard no_grad;
    lora_A->weight.uniform_(-bound, bound, generator);
    lora_B->weight.zero_();
  }
  lora_A->to(device);
  lora_B->to(device);
  lora_dropout->train(is_training());
}

torch::Tensor AdaptableLinearImpl::merged_weight() const {
  const torch::NoGradGuard no_grad;
  const auto base =
      quantized_.defined() ? dequantize(quantized_, 0, quantized_.rows()) : weight.detach();
  if (!adapted()) return base.clone();
  return base + torch::mm(lora_B->weight, lora_A->weight) * scale_;
}

void add_adapters(torch::nn::Module& model, const LoraConfig& lora, std::optional<uint64_t> seed) {
  std::optional<at::Generator> generator;
  if (seed) generator = at::make_generator<at::CPUGeneratorImpl>(*seed);
  for (const auto& item : model.named_parameters())
    item.value().set_requires_grad(is_trained_with_adapters(item.key()));
  const auto modules = model.named_modules();
  std::vector<std::string> layers;
  for (const auto& item : modules) {
    if (dynamic_cast<Adaptable*>(item.value().get()) != nullptr) layers.push_back(item.key());
  }
  for (const std::string& layer : adapted_layers(lora.targets, layers))
    dynamic_cast<Adaptable&>(*modules[layer]).add_adapter(lora, generator);
}

int64_t quantized_count(const torch::nn::Module& model) {
  int64_t count = 0;
  for (const auto& module : model.modules(/*include_self=*/false)) {
    const auto* const linear = module->as<AdaptableLinearImpl>();
    if (linear != nullptr && linear->quantized().defined())
      count += linear->quantized().rows() * linear->quantized().columns();
  }
  return count;
}

}  // namespace ddp::train
