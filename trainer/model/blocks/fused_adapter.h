// The low-rank adapter (lora.h) of layers that are one in transformers' files, as Phi-3's qkv_proj,
// which this trainer has as several. They have the same input.
#pragma once

#include <torch/torch.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "trainer/model/blocks/adaptable_linear.h"

namespace ddp::train {

/// Without an adapter it has no parameters and computes nothing. Its lora_B has the rows of all
/// layers, one after the other.
class FusedAdapterImpl : public torch::nn::Module, public Adaptable {
 public:
  /// A layer next to this module, and its outputs.
  struct Layer {
    std::string name;
    int64_t out;
  };
  FusedAdapterImpl(int64_t in, std::vector<Layer> layers) : in_(in), layers_(std::move(layers)) {}

  void add_adapter(const LoraConfig& lora, const std::optional<at::Generator>& generator) override;
  bool plain() const override { return lora_A.is_empty(); }
  /// Returns what the adapter adds to the weights of all layers, [sum of out, in].
  torch::Tensor merged_weight() const override;
  /// Adds the adapter's outputs for x [.., in] to those of the layers, [.., out], in their order.
  void add_to(const torch::Tensor& x, std::initializer_list<torch::Tensor*> outputs);
  const std::vector<Layer>& layers() const { return layers_; }

 private:
  int64_t in_;
  std::vector<Layer> layers_;
  torch::nn::Linear lora_A{nullptr}, lora_B{nullptr};
  torch::nn::Dropout lora_dropout{nullptr};
  double scale_ = 1.0;
};
TORCH_MODULE(FusedAdapter);

}  // namespace ddp::train
