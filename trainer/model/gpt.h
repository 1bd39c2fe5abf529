// The whole model: minGPT's decoder-only transformer (pre-norm, learned positions), causal.
//
// After A. Karpathy's minGPT (model.py) and Radford et al., "Language models are unsupervised
// multitask learners" (2019). Parameter names are those of Hugging Face's GPT2LMHeadModel; weights
// of linear layers lie as [out, in]. Shape suffixes: B batch, T sequence, C n_embd, H heads, D = C
// / H, V vocabulary.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/config/param_groups.h"
#include "trainer/model/key_value_cache.h"

namespace ddp::train {

/// A layer's part of the cache during one pass.
struct CachedPositions {
  KeyValueCache::Layer& layer;
  int64_t start = 0;  ///< Positions in it before this pass.
  int64_t capacity = 0;
  torch::Tensor mask;  ///< As KeyValueCache::mask().
};

class CausalSelfAttentionImpl : public torch::nn::Module {
 public:
  explicit CausalSelfAttentionImpl(const GptConfig& config);
  /// [B, T, C] -> residual + [B, T, C]; position t sees positions <= t only, and those of `cached`,
  /// to which this pass adds its own.
  torch::Tensor forward(const torch::Tensor& x_BTC, const torch::Tensor& residual_BTC,
                        const CachedPositions* cached);

 private:
  torch::Tensor heads(const torch::Tensor& x_BTC, const CachedPositions* cached);
  torch::Tensor attend(const std::vector<torch::Tensor>& qkv, const CachedPositions* cached) const;

  torch::nn::Linear c_attn{nullptr};  // query, key and value in one projection
  torch::nn::Linear c_proj{nullptr};
  torch::nn::Dropout resid_dropout{nullptr};
  int64_t n_head_;
  double attn_pdrop_;
  bool fused_;
};
TORCH_MODULE(CausalSelfAttention);

class MlpImpl : public torch::nn::Module {
 public:
  explicit MlpImpl(const GptConfig& config);
  /// [B, T, C] -> residual + [B, T, C].
  torch::Tensor forward(const torch::Tensor& x_BTC, const torch::Tensor& residual_BTC);

 private:
  torch::nn::Linear c_fc{nullptr};
  torch::nn::Linear c_proj{nullptr};
  torch::nn::Dropout dropout{nullptr};
  std::string gelu_approximation_;
  bool fused_;
};
TORCH_MODULE(Mlp);

class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const GptConfig& config);
  torch::Tensor forward(torch::Tensor x_BTC, const CachedPositions* cached);

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
  TransformerImpl(const GptConfig& config, int64_t vocab_size, int64_t block_size);
  /// int64 [B, T] -> [B, T, C]. With a cache the tokens follow those in it.
  torch::Tensor forward(const torch::Tensor& idx_BT, KeyValueCache* cache);

  torch::nn::Embedding wte{nullptr};

 private:
  torch::Tensor through_block(std::size_t index, const torch::Tensor& x_BTC);
  torch::Tensor through_cache(torch::Tensor x_BTC, KeyValueCache& cache);

  bool checkpointed_;
  bool fused_;
  torch::nn::Embedding wpe{nullptr};
  torch::nn::Dropout drop{nullptr};
  torch::nn::ModuleList h{nullptr};
  torch::nn::LayerNorm ln_f{nullptr};
};
TORCH_MODULE(Transformer);

struct ModelParameter {
  std::string name;
  torch::Tensor tensor;
  ParameterRole role = ParameterRole::kOther;
};

class GPTImpl : public torch::nn::Module {
 public:
  /// Weights drawn from `seed`: N(0, 0.02), residual output projections N(0, 0.02 / sqrt(2
  /// n_layer)), biases 0, norms 1. Without one they may be anything, for who loads all of them.
  GPTImpl(const GptConfig& config, int64_t vocab_size, int64_t block_size,
          std::optional<uint64_t> seed);

  /// int64 [B, T], T <= block_size -> logits [B, T, V].
  torch::Tensor forward(const torch::Tensor& idx_BT);
  /// Logits of the last position alone, [B, V], of tokens that follow those in `cache`; reads them
  /// into it. A second pass takes one token per row.
  torch::Tensor next_logits(const torch::Tensor& idx_BT, KeyValueCache& cache);
  /// Mean negative log-likelihood in nats over the targets that are not -1; a float32 scalar.
  torch::Tensor loss(const torch::Tensor& idx_BT, const torch::Tensor& targets_BT);
  /// Sums over the targets that are not -1: negative log-likelihood in nats, targets that were the
  /// most likely token, targets. float32 [3].
  torch::Tensor evaluation_sums(const torch::Tensor& idx_BT, const torch::Tensor& targets_BT);

  int64_t n_layer() const { return n_layer_; }
  int64_t block_size() const { return block_size_; }
  int64_t vocab_size() const { return vocab_size_; }
  /// Columns of zeros that the loss and evaluations compute behind the logits and leave out again.
  int64_t logits_padding() const;
  /// Every distinct parameter once, in the order of registration.
  std::vector<ModelParameter> model_parameters() const;
  /// All parameters, a tied matrix once.
  int64_t parameter_count() const;

 private:
  void initialise(uint64_t seed);
  const torch::Tensor& head_weight() const;
  /// [..., C] -> [..., V].
  torch::Tensor logits(const torch::Tensor& x, const torch::Tensor& table_PC) const;
  int64_t rows_at_a_time(int64_t rows) const;

  Transformer transformer{nullptr};
  torch::nn::Linear lm_head{nullptr};  // empty when the head is tied to wte
  int64_t n_layer_;
  int64_t vocab_size_;
  int64_t block_size_;
  AutoNumber loss_chunk_size_;
  AutoNumber padded_to_;
};
TORCH_MODULE(GPT);

}  // namespace ddp::train
