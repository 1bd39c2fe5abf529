// BERT: a bidirectional transformer encoder (post-norm, learned positions), and its masked-LM head;
// RoBERTa and DistilBERT by other traits of the same network.
//
// After J. Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language
// Understanding" (2019). Modules and parameters are named as in Hugging Face's BertForMaskedLM,
// RobertaForMaskedLM and DistilBertForMaskedLM; weights of linear layers are [out, in] there, too.
// Shape suffixes: B batch, T sequence, C n_embd, H heads, D = C / H, V vocabulary, M masked
// positions.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainer/config/model_config.h"
#include "trainer/model/blocks/adaptable_embedding.h"
#include "trainer/model/blocks/adaptable_linear.h"
#include "trainer/model/blocks/model_unit.h"
#include "trainer/model/model_parameter.h"

namespace ddp::train {

// NOLINTBEGIN(readability-identifier-naming): modules are named as in a checkpoint
class BertEmbeddingsImpl : public torch::nn::Module {
 public:
  BertEmbeddingsImpl(const BertConfig& config, int64_t vocab_size, int64_t positions);
  /// int64 [B, T], the tokens' types; undefined: all 0; embeddings of virtual tokens in front of
  /// them; undefined: none -> [B, P + T, C].
  torch::Tensor forward(const torch::Tensor& idx_BT, const torch::Tensor& types_BT = {},
                        const torch::Tensor& prompt_PC = {});

  AdaptableEmbedding word_embeddings{nullptr};

 private:
  torch::nn::Embedding position_embeddings{nullptr};
  torch::nn::Embedding token_type_embeddings{nullptr};  // null: the family has no token types
  torch::nn::LayerNorm norm{nullptr};
  double hidden_pdrop_;
  int64_t position_offset_;
};
TORCH_MODULE(BertEmbeddings);

class BertLayerImpl : public ModelUnit {
 public:
  explicit BertLayerImpl(const BertConfig& config);
  /// `seen_B11T`: bool, the positions that others attend to; undefined: all.
  torch::Tensor forward(const torch::Tensor& x_BTC, const torch::Tensor& seen_B11T);

 private:
  torch::Tensor attend(const torch::Tensor& x_BTC, const torch::Tensor& seen_B11T);
  torch::Tensor drop(const torch::Tensor& x) const;

  AdaptableLinear query{nullptr};
  AdaptableLinear key{nullptr};
  AdaptableLinear value{nullptr};
  AdaptableLinear attention_output{nullptr};
  torch::nn::LayerNorm attention_norm{nullptr};
  AdaptableLinear inner{nullptr};
  AdaptableLinear output{nullptr};
  torch::nn::LayerNorm output_norm{nullptr};
  int64_t n_head_;
  double hidden_pdrop_;
  double attn_pdrop_;
  bool drops_attention_output_;
};
TORCH_MODULE(BertLayer);

/// The encoder; bert_classifier.h has the pooler.
class BertImpl : public torch::nn::Module {
 public:
  BertImpl(const BertConfig& config, int64_t vocab_size, int64_t positions);
  /// int64 [B, T], T <= positions; bool [B, T], false for padding, not defined: there is none; the
  /// types and virtual tokens as the embeddings' -> [B, P + T, C].
  torch::Tensor forward(const torch::Tensor& idx_BT, const torch::Tensor& seen_BT = {},
                        const torch::Tensor& types_BT = {}, const torch::Tensor& prompt_PC = {});

  BertEmbeddings embeddings{nullptr};

 private:
  torch::nn::ModuleList layer{nullptr};
};
TORCH_MODULE(Bert);

/// The module `name` of `root`, which is made if it is missing.
torch::nn::Module& named_group(torch::nn::Module& root, const std::string& name);
/// Registers `module` below `root` at a path, "attention.self.query", through modules that only
/// give names.
template <class Holder>
Holder register_at(torch::nn::Module& root, const std::string& path, Holder module) {
  const std::size_t dot = path.find('.');
  if (dot == std::string::npos) return root.register_module(path, std::move(module));
  return register_at(named_group(root, path.substr(0, dot)), path.substr(dot + 1),
                     std::move(module));
}
torch::nn::LayerNorm bert_norm(const BertConfig& config);

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
