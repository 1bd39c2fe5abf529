// Linear layers and embeddings that several ranks may share: each holds its part of the weight and
// communicates on entering or leaving the layer. Blocks made of them have no code for ranks.
//
// The names are those of Shoeybi et al., "Megatron-LM: training multi-billion parameter language
// models using model parallelism" (2019). A ColumnLinear is followed by a RowLinear: together they
// take one collective forward and one backward, with sequence parallelism two each. Between such
// pairs each rank has all rows of the residual stream or, with sequence parallelism (Korthikanti et
// al., "Reducing activation recomputation in large transformer models", 2022), `rows` of them.
// Shape suffixes: B batch, T sequence, S the rows of it that this rank holds, C width.
//
// Constructors take the sizes of the whole model. Weights are undefined until they are drawn or
// loaded, which also keeps this rank's part (CausalModel, by its WeightsLayout).
#pragma once

#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <vector>

#include "trainer/model/blocks/adaptable_embedding.h"
#include "trainer/model/blocks/adaptable_linear.h"
#include "trainer/model/blocks/tensor_parallel.h"
#include "trainer/model/ops/residual_stream.h"

namespace ddp::train {

/// What the layers of a model have in common.
struct LayerOptions {
  TensorRanksPtr ranks{};  ///< Those that share them; null: each layer is whole.
  bool fused_cpu = true;  ///< Whether the kernels of model/ops/cpu/ may replace several of torch's.
  TensorRanksPtr experts{};  ///< Those that share experts; null: each layer has all of them.
};

/// A linear layer divided by outputs (Split::kColumns): [B, S, in] -> [B, T, out / ranks].
class ColumnLinearImpl : public AdaptableLinearImpl {
 public:
  ColumnLinearImpl(int64_t in, int64_t out, bool with_bias, const LayerOptions& layers);

  torch::Tensor forward(const torch::Tensor& x_BSC, const cpu::Places& rows);
  /// forward() as queries, keys and values of this rank's `heads`, each [B, T, heads, head size].
  std::vector<torch::Tensor> to_heads(const torch::Tensor& x_BSC, const cpu::Places& rows,
                                      int64_t heads);
  /// gelu(forward()); `tanh`: GPT-2's approximation.
  torch::Tensor gelu(const torch::Tensor& x_BSC, const cpu::Places& rows, bool tanh);
  /// forward() in float32, for kernels of a CPU.
  torch::Tensor in_float32(const torch::Tensor& x_BSC, const cpu::Places& rows);

  /// The rows of all ranks, which the layer multiplies.
  torch::Tensor enter(const torch::Tensor& x_BSC, const cpu::Places& rows) const {
    return enter_layers(x_BSC, layers_.ranks, rows);
  }
  torch::Tensor product(const torch::Tensor& x_BTC) { return AdaptableLinearImpl::forward(x_BTC); }

 private:
  LayerOptions layers_;
};
TORCH_MODULE(ColumnLinear);

/// The outputs of layers with the same input, which is communicated once.
template <typename... Others>
std::array<torch::Tensor, 1 + sizeof...(Others)> side_by_side(const torch::Tensor& x_BSC,
                                                              const cpu::Places& rows,
                                                              ColumnLinear& first,
                                                              Others&... others) {
  const auto x_BTC = first->enter(x_BSC, rows);
  return {first->product(x_BTC), others->product(x_BTC)...};
}

/// A linear layer divided by inputs (Split::kRows), whose products the ranks add up before the bias
/// and dropout: [B, T, in / ranks] -> [B, S, out]. Dropout is that of one process: where rows are
/// divided, by this rank's part of all masks.
class RowLinearImpl : public AdaptableLinearImpl {
 public:
  RowLinearImpl(int64_t in, int64_t out, bool with_bias, const LayerOptions& layers,
                double dropout = 0.0);

  torch::Tensor forward(const torch::Tensor& x_BTI, const cpu::Places& rows);
  /// residual_BSC + forward(); the sum may be left to the next norm.
  ResidualStream add_to(const torch::Tensor& residual_BSC, const torch::Tensor& x_BTI,
                        const cpu::Places& rows);

 private:
  double active_dropout() const { return is_training() ? dropout_ : 0.0; }
  /// The sum of the ranks' products, without a bias.
  torch::Tensor sum_of_products(const torch::Tensor& x_BTI, const cpu::Places& rows) const;
  torch::Tensor biased_sum(const torch::Tensor& x_BTI, const cpu::Places& rows);

  LayerOptions layers_;
  double dropout_;
};
TORCH_MODULE(RowLinear);

/// A table of tokens, divided by rows (Split::kVocabulary): int64 [B, T] -> [B, S, C].
class VocabEmbeddingImpl : public AdaptableEmbeddingImpl {
 public:
  VocabEmbeddingImpl(int64_t vocab_size, int64_t width, const LayerOptions& layers);
  torch::Tensor forward(const torch::Tensor& idx_BT, const cpu::Places& rows);

 private:
  LayerOptions layers_;
};
TORCH_MODULE(VocabEmbedding);

}  // namespace ddp::train
