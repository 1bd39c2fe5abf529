// Llama's decoder-only transformer: RMSNorm before each layer, rotary positions, grouped-query
// attention, SwiGLU, no biases; with biases of q, k and v it is Qwen2's, with norms of the query
// and key heads Qwen3's.
//
// After Touvron et al., "Llama 2" (2023), Dubey et al., "The Llama 3 herd of models" (2024) and
// Yang et al., "Qwen3 technical report" (2025). Parameter names are those of transformers'
// LlamaForCausalLM. Shape suffixes: B batch, T sequence, C n_embd, H query heads, K key and value
// heads, D head_dim, I intermediate, V vocabulary.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "trainer/model/blocks/adaptable_linear.h"
#include "trainer/model/blocks/key_value_cache.h"
#include "trainer/model/blocks/model_unit.h"
#include "trainer/model/blocks/token_context.h"
#include "trainer/model/causal_model.h"
#include "trainer/model/llama/llama_config.h"
#include "trainer/model/ops/gpu_ops.h"

namespace ddp::train {

/// Root mean square normalization over the last dimension, in float32.
class RmsNormImpl : public torch::nn::Module {
 public:
  RmsNormImpl(int64_t width, double eps);
  torch::Tensor forward(const torch::Tensor& x) const;
  gpu::NormWeights weights() const { return {weight, {}, eps_}; }

 private:
  torch::Tensor weight;
  double eps_;
};
TORCH_MODULE(RmsNorm);

/// The inputs that all blocks of a pass share.
struct LlamaPass {
  torch::Tensor cos, sin;          ///< For the positions, [.., T, D / 2].
  KeyValueCache* cache = nullptr;  ///< Null: no earlier tokens.
  torch::Tensor mask{};            ///< As TokenContext::mask().
  TensorRanksPtr ranks{};          ///< Null: the layers are not shared.
  bool by_rows = false;            ///< This rank holds rows between them; see divides_rows().

  torch::Tensor enter(const torch::Tensor& x) const {
    return ranks ? enter_layers(x, ranks, by_rows) : x;
  }
  torch::Tensor leave(const torch::Tensor& product) const {
    return ranks ? leave_layers(product, ranks, by_rows) : product;
  }
};

class LlamaAttentionImpl : public torch::nn::Module {
 public:
  explicit LlamaAttentionImpl(const LlamaShape& shape);
  /// [B, T, C] -> [B, T, C]; position t sees positions <= t only, and those in layer `layer` of the
  /// cache, to which this pass adds its own.
  torch::Tensor forward(const torch::Tensor& x_BTC, const LlamaPass& pass, std::size_t layer);

 private:
  /// [B, T, H D] by the kernels of a CPU.
  torch::Tensor attend_fused(const torch::Tensor& q_BTHD, const torch::Tensor& k_BTKD,
                             const torch::Tensor& v_BTKD, const LlamaPass& pass,
                             std::size_t layer) const;
  torch::Tensor attend(const torch::Tensor& q_BHTD, torch::Tensor k_BKTD, torch::Tensor v_BKTD,
                       const LlamaPass& pass, std::size_t layer) const;

  AdaptableLinear q_proj{nullptr}, k_proj{nullptr}, v_proj{nullptr}, o_proj{nullptr};
  RmsNorm q_norm{nullptr}, k_norm{nullptr};  // empty without qk_norm
  int64_t head_dim_;
};
TORCH_MODULE(LlamaAttention);

class LlamaMlpImpl : public torch::nn::Module {
 public:
  explicit LlamaMlpImpl(const LlamaShape& shape);
  torch::Tensor forward(const torch::Tensor& x_BTC, const LlamaPass& pass);

 private:
  AdaptableLinear gate_proj{nullptr}, up_proj{nullptr}, down_proj{nullptr};
};
TORCH_MODULE(LlamaMlp);

class LlamaBlockImpl : public ModelUnit {
 public:
  explicit LlamaBlockImpl(const LlamaShape& shape);
  torch::Tensor forward(const torch::Tensor& x_BTC, const LlamaPass& pass, std::size_t layer);
  /// The same without the last addition, where gpu::takes_norm() or fused::takes_products().
  gpu::Stream unadded(const gpu::Stream& stream, const LlamaPass& pass, std::size_t layer);

 private:
  RmsNorm input_layernorm{nullptr};
  LlamaAttention self_attn{nullptr};
  RmsNorm post_attention_layernorm{nullptr};
  LlamaMlp mlp{nullptr};
};
TORCH_MODULE(LlamaBlock);

/// Embedding, blocks and final norm: the part whose names start with `model.`.
class LlamaStackImpl : public torch::nn::Module {
 public:
  LlamaStackImpl(const LlamaConfig& config, int64_t vocab_size, const TensorRanksPtr& ranks);
  /// See CausalModel::stage(). `tokens`: those in this rank's rows of embed_tokens.
  torch::Tensor stage(const torch::Tensor& x_BTC, const LayerRange& range,
                      const torch::Tensor& idx_BT, const TokenContext& context,
                      const IndexRange& tokens);
  void keep(const ModelPart& part, bool with_table);

  torch::nn::Embedding embed_tokens{nullptr};

 private:
  LlamaPass pass_of(const torch::Tensor& idx_BT, const TokenContext& context);
  gpu::Stream through_block(std::size_t index, const gpu::Stream& stream, const LlamaPass& pass);

  TensorRanksPtr ranks_;
  bool checkpointed_;
  torch::nn::ModuleList layers{nullptr};
  RmsNorm norm{nullptr};
  torch::Tensor frequencies_;  // [D / 2], moved to the device of the tokens
};
TORCH_MODULE(LlamaStack);

class LlamaImpl : public CausalModel {
 public:
  /// Weights drawn from `seed`: N(0, 0.02), those added to the residual stream N(0, 0.02 / sqrt(2
  /// n_layer)), biases 0, norms 1. Without one they are undefined, for a caller that loads them
  /// all.
  LlamaImpl(const LlamaConfig& config, int64_t vocab_size, int64_t block_size,
            std::optional<uint64_t> seed, const TensorRanksPtr& ranks = {});

  const torch::Tensor& head_weight() const override;
  int64_t layers() const override { return n_layer_; }
  torch::Tensor stage(const torch::Tensor& x_BTC, const LayerRange& range,
                      const torch::Tensor& idx_BT, const TokenContext& context) override {
    return model->stage(x_BTC, range, idx_BT, context, own_tokens());
  }

 protected:
  int64_t cached_layers() const override { return n_layer_; }
  void keep(const ModelPart& part) override;
  void draw_weights(uint64_t seed) override;
  torch::Tensor tied_table() const override;

 private:
  LlamaStack model{nullptr};
  torch::nn::Linear lm_head{nullptr};  // empty when the head is tied to embed_tokens
  int64_t n_layer_;
  bool tied_;
};
TORCH_MODULE(Llama);

/// See MakeCausalModel.
std::shared_ptr<CausalModel> make_llama(const Config& config, int64_t vocab_size,
                                        std::optional<uint64_t> seed, const TensorRanksPtr& ranks);

/// Radians by which a position turns each pair of a head's numbers, float32 [D / 2]; as in
/// transformers, to the bit.
torch::Tensor rotary_frequencies(const LlamaShape& shape);

}  // namespace ddp::train
