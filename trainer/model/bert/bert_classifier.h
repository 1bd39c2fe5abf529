// BERT's encoder with its pooler and a linear layer: gives each text, or pair of texts, scores of
// classes or labels, or a number.
//
// Modules and parameters are named as in Hugging Face's BertForSequenceClassification, and as in
// the classes of the other families. Shape suffixes as in bert.h; K classes.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "trainer/config/model_config.h"
#include "trainer/model/bert/bert.h"
#include "trainer/model/bert_family.h"

namespace ddp::train {

// NOLINTBEGIN(readability-identifier-naming): modules are named as in a checkpoint
class BertForSequenceClassificationImpl : public torch::nn::Module {
 public:
  BertForSequenceClassificationImpl(const BertConfig& config, int64_t vocab_size, int64_t positions,
                                    int64_t classes, uint64_t seed);
  /// Logits, [B, K].
  torch::Tensor forward(const torch::Tensor& idx_BT, const torch::Tensor& seen_BT = {},
                        const torch::Tensor& types_BT = {});

  /// Freezes all parameters but the classifier's own layers, and adds one: embeddings of virtual
  /// tokens, [P, C], that come before the tokens of each text. As in peft, the pooler takes the
  /// first of them.
  void add_prompt(const torch::Tensor& embeddings_PC);

  /// Without virtual tokens.
  int64_t positions() const { return positions_ - (prompt_PC_.defined() ? prompt_PC_.size(0) : 0); }
  int64_t vocab_size() const { return vocab_size_; }
  std::vector<ModelParameter> model_parameters() const { return bert_parameters(*this); }

 private:
  Bert bert{nullptr};
  torch::nn::Linear pooler{nullptr};  // of the first position, which is [CLS]
  torch::Tensor prompt_PC_;           // undefined: there are no virtual tokens
  torch::nn::Linear classifier{nullptr};
  const BertTraits& traits_;
  double hidden_pdrop_;
  int64_t positions_;
  int64_t vocab_size_;
};
TORCH_MODULE(BertForSequenceClassification);
// NOLINTEND(readability-identifier-naming)

}  // namespace ddp::train
