// BERT: a bidirectional transformer encoder (post-norm, learned positions), and its masked-LM head.
//
// After J. Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language
// Understanding" (2019). Modules and parameters are named as in Hugging Face's BertForMaskedLM;
// weights of linear layers are [out, in] there, too. Shape suffixes: B batch, T sequence, C
// n_embd, H heads, D = C / H, V vocabulary, M masked positions.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/model/blocks/model_unit.h"
#include "trainer/model/model_parameter.h"

namespace ddp::train {

// NOLINTBEGIN(readability-identifier-naming): modules are named as in a checkpoint
class BertEmbeddingsImpl : public torch::nn::Module {
 public:
  BertEmbeddingsImpl(const BertConfig& config, int64_t vocab_size, int64_t positions);
  /// int64 [B, T] -> [B, T, C]; every token is of the first of two sentences.
  torch::Tensor forward(const torch::Tensor& idx_BT);

  torch::nn::Embedding word_embeddings{nullptr};

 private:
  torch::nn::Embedding position_embeddings{nullptr};
  torch::nn::Embedding token_type_embeddings{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(BertEmbeddings);

class BertSelfAttentionImpl : public torch::nn::Module {
 public:
  explicit BertSelfAttentionImpl(const BertConfig& config);
  /// `seen_B11T`: bool, the positions that others attend to; undefined: all.
  torch::Tensor forward(const torch::Tensor& x_BTC, const torch::Tensor& seen_B11T);

 private:
  torch::nn::Linear query{nullptr};
  torch::nn::Linear key{nullptr};
  torch::nn::Linear value{nullptr};
  int64_t n_head_;
  double attn_pdrop_;
};
TORCH_MODULE(BertSelfAttention);

/// The output part of attention and of the wide layer: norm(dropout(dense(x)) + residual).
class BertOutputImpl : public torch::nn::Module {
 public:
  BertOutputImpl(const BertConfig& config, int64_t inputs);
  torch::Tensor forward(const torch::Tensor& x_BTI, const torch::Tensor& residual_BTC);

 private:
  torch::nn::Linear dense{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(BertOutput);

class BertLayerImpl : public ModelUnit {
 public:
  explicit BertLayerImpl(const BertConfig& config);
  torch::Tensor forward(const torch::Tensor& x_BTC, const torch::Tensor& seen_B11T);

 private:
  BertSelfAttention self{nullptr};
  BertOutput attention_output{nullptr};
  torch::nn::Linear intermediate{nullptr};
  BertOutput output{nullptr};
};
TORCH_MODULE(BertLayer);

/// The encoder; bert_classifier.h has the pooler.
class BertImpl : public torch::nn::Module {
 public:
  BertImpl(const BertConfig& config, int64_t vocab_size, int64_t positions);
  /// int64 [B, T], T <= positions; bool [B, T], false for padding, not defined: there is none ->
  /// [B, T, C].
  torch::Tensor forward(const torch::Tensor& idx_BT, const torch::Tensor& seen_BT = {});

  BertEmbeddings embeddings{nullptr};

 private:
  torch::nn::ModuleList layer{nullptr};
};
TORCH_MODULE(Bert);

/// Draws the parameters of `module` from `seed` as BERT does: N(0, 0.02), biases 0, norms 1.
void initialise_bert(torch::nn::Module& module, uint64_t seed);

/// Every parameter of a model with such an encoder once, in the order of registration.
std::vector<ModelParameter> bert_parameters(const torch::nn::Module& module);
int64_t parameter_count(const torch::nn::Module& module);

class BertForMaskedLmImpl : public torch::nn::Module {
 public:
  BertForMaskedLmImpl(const BertConfig& config, int64_t vocab_size, int64_t positions,
                      uint64_t seed);
  /// Logits of all positions, [B, T, V].
  torch::Tensor forward(const torch::Tensor& idx_BT, const torch::Tensor& seen_BT = {});
  /// Logits of the positions `chosen_M` of the flattened [B, T], int64: [M, V].
  torch::Tensor logits_at(const torch::Tensor& idx_BT, const torch::Tensor& seen_BT,
                          const torch::Tensor& chosen_M);

  int64_t positions() const { return positions_; }
  int64_t vocab_size() const { return vocab_size_; }
  /// The decoder is the word embedding.
  std::vector<ModelParameter> model_parameters() const { return bert_parameters(*this); }

 private:
  torch::Tensor predict(const torch::Tensor& x_XC);

  Bert bert{nullptr};
  torch::nn::Linear transform{nullptr};
  torch::nn::LayerNorm transform_norm{nullptr};
  torch::Tensor decoder_bias_V;
  int64_t positions_;
  int64_t vocab_size_;
};
TORCH_MODULE(BertForMaskedLm);
// NOLINTEND(readability-identifier-naming)

}  // namespace ddp::train
