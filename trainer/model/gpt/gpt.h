// The whole GPT model: minGPT's decoder-only transformer (pre-norm, learned positions), causal.
//
// After A. Karpathy's minGPT (model.py) and Radford et al., "Language models are unsupervised
// multitask learners" (2019). Parameter names are those of Hugging Face's GPT2LMHeadModel; weights
// of linear layers are [out, in]. Shape suffixes: B batch, T sequence, C n_embd, H heads, D = C
// / H, V vocabulary.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/model/blocks/adaptable_linear.h"
#include "trainer/model/blocks/key_value_cache.h"
#include "trainer/model/blocks/model_unit.h"
#include "trainer/model/blocks/tensor_parallel.h"
#include "trainer/model/blocks/token_context.h"
#include "trainer/model/causal_model.h"
#include "trainer/model/model_part.h"
#include "trainer/model/ops/fused_ops.h"
#include "trainer/model/ops/gpu_ops.h"

namespace ddp::train {

/// The context of attention beyond the tokens of its input.
struct AttentionScope {
  KeyValueCache* cache = nullptr;  ///< Null: no earlier tokens.
  std::size_t layer = 0;           ///< The layer's index in the cache.
  torch::Tensor mask{};            ///< As TokenContext::mask().
  fused::Places rows{};  ///< Rows of a sequence that this rank holds between shared layers.
};

class CausalSelfAttentionImpl : public torch::nn::Module {
 public:
  CausalSelfAttentionImpl(const GptConfig& config, const TensorRanksPtr& ranks);
  /// [B, T, C] -> residual + [B, T, C]; position t sees positions <= t only, and those in
  /// `scope.cache`, to which this pass adds its own.
  torch::Tensor forward(const torch::Tensor& x_BTC, const torch::Tensor& residual_BTC,
                        const AttentionScope& scope);
  /// The same without the residual.
  torch::Tensor branch(const torch::Tensor& x_BTC, const AttentionScope& scope);

 private:
  torch::Tensor heads(const torch::Tensor& x_BTC, const AttentionScope& scope);
  torch::Tensor attend(const std::vector<torch::Tensor>& qkv, const AttentionScope& scope) const;
  torch::Tensor attend_with_masks_of_all(const std::vector<torch::Tensor>& qkv,
                                         const torch::Tensor& mask) const;

  AdaptableLinear c_attn{nullptr};  // query, key and value in one projection
  AdaptableLinear c_proj{nullptr};
  torch::nn::Dropout resid_dropout{nullptr};
  TensorRanksPtr ranks_;
  int64_t n_head_;         // of this rank
  fused::Places heads_{};  // among those of all ranks
  int64_t head_dim_;
  double attn_pdrop_;
  bool fused_;
};
TORCH_MODULE(CausalSelfAttention);

class MlpImpl : public torch::nn::Module {
 public:
  MlpImpl(const GptConfig& config, const TensorRanksPtr& ranks);
  /// [B, T, C] -> residual + [B, T, C].
  torch::Tensor forward(const torch::Tensor& x_BTC, const torch::Tensor& residual_BTC,
                        const fused::Places& rows);
  /// The same without the residual.
  torch::Tensor branch(const torch::Tensor& x_BTC, const fused::Places& rows);

 private:
  torch::Tensor inner(const torch::Tensor& x_BTC);

  AdaptableLinear c_fc{nullptr};
  AdaptableLinear c_proj{nullptr};
  torch::nn::Dropout dropout{nullptr};
  TensorRanksPtr ranks_;
  std::string gelu_approximation_;
  bool fused_;
};
TORCH_MODULE(Mlp);

class BlockImpl : public ModelUnit {
 public:
  BlockImpl(const GptConfig& config, const TensorRanksPtr& ranks);
  torch::Tensor forward(const torch::Tensor& x_BTC, const AttentionScope& scope);
  /// The same without the last addition, where gpu::takes_norm().
  gpu::Stream unadded(const gpu::Stream& stream, const AttentionScope& scope);

 private:
  torch::nn::LayerNorm ln_1{nullptr};
  CausalSelfAttention attn{nullptr};
  torch::nn::LayerNorm ln_2{nullptr};
  Mlp mlp{nullptr};
};
TORCH_MODULE(Block);

/// Embeddings, blocks and final norm: the part whose names start with `transformer.`.
class TransformerImpl : public torch::nn::Module {
 public:
  TransformerImpl(const GptConfig& config, int64_t vocab_size, int64_t block_size,
                  const TensorRanksPtr& ranks);
  /// See CausalModel::stage(). `tokens`: those in this rank's rows of wte.
  torch::Tensor stage(const torch::Tensor& x_BTC, const LayerRange& layers,
                      const torch::Tensor& idx_BT, const TokenContext& context,
                      const IndexRange& tokens);
  void keep(const ModelPart& part, bool with_table);

  torch::nn::Embedding wte{nullptr};

 private:
  fused::Places rows_in_pass(int64_t length, const TokenContext& context) const;
  torch::Tensor embed(const torch::Tensor& idx_BT, const TokenContext& context,
                      const IndexRange& tokens, const fused::Places& rows);
  gpu::Stream through_block(int64_t index, const gpu::Stream& stream, const TokenContext& context,
                            const torch::Tensor& mask, const fused::Places& rows);

  TensorRanksPtr ranks_;
  bool checkpointed_;
  bool fused_;
  bool drops_;  // anything
  torch::nn::Embedding wpe{nullptr};
  torch::nn::Dropout drop{nullptr};
  torch::nn::ModuleList h{nullptr};
  torch::nn::LayerNorm ln_f{nullptr};
};
TORCH_MODULE(Transformer);

class GPTImpl : public CausalModel {
 public:
  /// Weights drawn from `seed`: N(0, 0.02), residual output projections N(0, 0.02 / sqrt(2
  /// n_layer)), biases 0, norms 1. Without one they are undefined, for a caller that loads them
  /// all. `ranks`: they share its layers; the weights are parts of those of one process.
  GPTImpl(const GptConfig& config, int64_t vocab_size, int64_t block_size,
          std::optional<uint64_t> seed, const TensorRanksPtr& ranks = {});

  const torch::Tensor& head_weight() const override;
  int64_t layers() const override { return n_layer_; }
  torch::Tensor stage(const torch::Tensor& x_BTC, const LayerRange& layers,
                      const torch::Tensor& idx_BT, const TokenContext& context) override {
    return transformer->stage(x_BTC, layers, idx_BT, context, own_tokens());
  }

 protected:
  int64_t cached_layers() const override { return n_layer_; }
  void keep(const ModelPart& part) override;
  void draw_weights(uint64_t seed) override;
  torch::Tensor tied_table() const override;

 private:
  Transformer transformer{nullptr};
  torch::nn::Linear lm_head{nullptr};  // empty when the head is tied to wte
  int64_t n_layer_;
  bool tied_;
};
TORCH_MODULE(GPT);

/// See MakeCausalModel.
std::shared_ptr<CausalModel> make_gpt(const Config& config, int64_t vocab_size,
                                      std::optional<uint64_t> seed, const TensorRanksPtr& ranks);

}  // namespace ddp::train
