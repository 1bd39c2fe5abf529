// A linear layer that can have a low-rank adapter (lora.h) next to a weight that may be quantized.
#pragma once

#include <torch/torch.h>

#include <optional>

#include "trainer/config/adapter_config.h"
#include "trainer/model/ops/quantized_weight.h"

namespace ddp::train {

/// A layer that can have an adapter.
class Adaptable {
 public:
  virtual ~Adaptable() = default;
  /// With initial values by `generator`, else undefined ones.
  virtual void add_adapter(const LoraConfig& lora,
                           const std::optional<at::Generator>& generator) = 0;
  /// Whether the layer is its weight alone, unquantized.
  virtual bool plain() const = 0;
  /// Returns the weight, a new tensor, of a plain layer that computes the same.
  virtual torch::Tensor merged_weight() const = 0;
};

/// Weights as uninitialized_linear()'s: undefined until they are drawn or loaded. Without an
/// adapter it computes what torch::nn::Linear does.
class AdaptableLinearImpl : public torch::nn::LinearImpl, public Adaptable {
 public:
  AdaptableLinearImpl(int64_t in, int64_t out, bool with_bias = true);

  /// [.., in] -> [.., out].
  torch::Tensor forward(const torch::Tensor& x);

  /// Adds lora_A, uniform within 1 / sqrt(in), and lora_B, zeros. On the weight's device.
  void add_adapter(const LoraConfig& lora, const std::optional<at::Generator>& generator) override;
  bool adapted() const { return !lora_A.is_empty(); }
  /// Replaces the parameter `weight`, which is undefined from then on, by buffers.
  void hold(QuantizedWeight weight);
  const QuantizedWeight& quantized() const { return quantized_; }
  bool plain() const override { return !adapted() && !quantized_.defined(); }
  torch::Tensor merged_weight() const override;
  /// Computes with `table`, a parameter of another module, instead of its own.
  void tie(const torch::Tensor& table);
  /// Returns x lora_A^T, scaled: the adapter of an adapted layer adds reduced(x) expanding()^T.
  torch::Tensor reduced(const torch::Tensor& x) { return lora_A(lora_dropout(x)) * scale_; }
  /// Returns lora_B [out, rank].
  const torch::Tensor& expanding() const { return lora_B->weight; }

 protected:
  /// Without the adapter.
  torch::Tensor product_with_weight(const torch::Tensor& x, const torch::Tensor& with_bias) const;

 private:
  torch::nn::Linear lora_A{nullptr}, lora_B{nullptr};
  torch::nn::Dropout lora_dropout{nullptr};
  double scale_ = 1.0;
  QuantizedWeight quantized_;
};
TORCH_MODULE(AdaptableLinear);

/// Freezes all parameters of `model`, but a text classifier's own layers, and adds an adapter to
/// each layer that lora.targets choose. Initial values depend on `seed` alone; without one they are
/// undefined.
void add_adapters(torch::nn::Module& model, const LoraConfig& lora, std::optional<uint64_t> seed);

/// Number of weights in layers of `model` that hold() codes, which parameters() leaves out.
int64_t quantized_count(const torch::nn::Module& model);

}  // namespace ddp::train
