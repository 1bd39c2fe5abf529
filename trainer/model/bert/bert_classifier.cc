#include "trainer/model/bert/bert_classifier.h"

#include "trainer/model/prompt_tuning.h"

namespace ddp::train {
namespace nn = torch::nn;

BertForSequenceClassificationImpl::BertForSequenceClassificationImpl(const BertConfig& config,
                                                                     int64_t vocab_size,
                                                                     int64_t positions,
                                                                     int64_t classes, uint64_t seed)
    : traits_(traits_of(config.family)),
      hidden_pdrop_(config.hidden_pdrop),
      positions_(positions),
      vocab_size_(vocab_size) {
  bert = register_module(traits_.base, Bert(config, vocab_size, positions));
  pooler = register_at(*this, traits_.pooler, nn::Linear(config.n_embd, config.n_embd));
  classifier = register_at(*this, traits_.classifier, nn::Linear(config.n_embd, classes));
  initialise_bert(*this, seed);
}

void BertForSequenceClassificationImpl::add_prompt(const torch::Tensor& embeddings_PC) {
  for (const auto& item : named_parameters())
    item.value().set_requires_grad(is_of_classifier(item.key()));
  prompt_PC_ = register_parameter(kPromptName, embeddings_PC.to(pooler->weight.device()));
}

torch::Tensor BertForSequenceClassificationImpl::forward(const torch::Tensor& idx_BT,
                                                         const torch::Tensor& seen_BT,
                                                         const torch::Tensor& types_BT) {
  TORCH_CHECK(idx_BT.size(1) <= positions(), "a sequence of ", idx_BT.size(1),
              " tokens is longer than the ", positions(), " positions");
  const auto drop = [this](const torch::Tensor& x) {
    return at::dropout(x, hidden_pdrop_, is_training());
  };
  const auto first_BC = bert(idx_BT, seen_BT, types_BT, prompt_PC_).select(1, 0);
  const auto y_BC = pooler(traits_.drops_before_pooler ? drop(first_BC) : first_BC);
  return classifier(drop(traits_.relu_pooler ? y_BC.relu() : y_BC.tanh()));
}

}  // namespace ddp::train
