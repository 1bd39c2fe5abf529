#include "trainer/model/bert/bert_classifier.h"

namespace ddp::train {
namespace nn = torch::nn;

BertPoolerImpl::BertPoolerImpl(const BertConfig& config) {
  dense = register_module("dense", nn::Linear(config.n_embd, config.n_embd));
}

torch::Tensor BertPoolerImpl::forward(const torch::Tensor& x_BTC) {
  return dense(x_BTC.select(1, 0)).tanh();
}

BertForSequenceClassificationImpl::BertForSequenceClassificationImpl(const BertConfig& config,
                                                                     int64_t vocab_size,
                                                                     int64_t positions,
                                                                     int64_t classes, uint64_t seed)
    : pooler(config), positions_(positions), vocab_size_(vocab_size) {
  bert = register_module("bert", Bert(config, vocab_size, positions));
  bert->register_module("pooler", pooler);
  dropout = register_module("dropout", nn::Dropout(config.hidden_pdrop));
  classifier = register_module("classifier", nn::Linear(config.n_embd, classes));
  initialise_bert(*this, seed);
}

torch::Tensor BertForSequenceClassificationImpl::forward(const torch::Tensor& idx_BT,
                                                         const torch::Tensor& seen_BT) {
  TORCH_CHECK(idx_BT.size(1) <= positions_, "a sequence of ", idx_BT.size(1),
              " tokens is longer than the ", positions_, " positions");
  return classifier(dropout(pooler(bert(idx_BT, seen_BT))));
}

}  // namespace ddp::train
