#include "trainer/model/bert/bert.h"

#include <memory>
#include <string>
#include <utility>

#include "trainer/model/blocks/attention.h"
#include "trainer/model/cost/bert_cost.h"

namespace ddp::train {
namespace nn = torch::nn;

namespace {

constexpr double kBertNormEpsilon = 1e-12;
constexpr double kBertInitStd = 0.02;
constexpr int64_t kSentences = 2;  // those that token types tell apart

nn::LayerNorm bert_norm(int64_t channels) {
  return nn::LayerNorm(nn::LayerNormOptions({channels}).eps(kBertNormEpsilon));
}

/// A module that only gives names: "attention.output".
template <typename... Modules>
std::shared_ptr<nn::Module> named_group(const std::pair<const char*, Modules>&... modules) {
  auto group = std::make_shared<nn::Module>();
  (group->register_module(modules.first, modules.second), ...);
  return group;
}

}  // namespace

BertEmbeddingsImpl::BertEmbeddingsImpl(const BertConfig& config, int64_t vocab_size,
                                       int64_t positions) {
  const int64_t channels = config.n_embd;
  word_embeddings = register_module("word_embeddings", nn::Embedding(vocab_size, channels));
  position_embeddings = register_module("position_embeddings", nn::Embedding(positions, channels));
  token_type_embeddings =
      register_module("token_type_embeddings", nn::Embedding(kSentences, channels));
  norm = register_module("LayerNorm", bert_norm(channels));
  dropout = register_module("dropout", nn::Dropout(config.hidden_pdrop));
}

torch::Tensor BertEmbeddingsImpl::forward(const torch::Tensor& idx_BT) {
  const auto positions =
      torch::arange(idx_BT.size(1), torch::TensorOptions(torch::kInt64).device(idx_BT.device()));
  const auto first_sentence_C = token_type_embeddings->weight.select(0, 0);
  return dropout(norm(word_embeddings(idx_BT) + first_sentence_C + position_embeddings(positions)));
}

BertSelfAttentionImpl::BertSelfAttentionImpl(const BertConfig& config)
    : n_head_(config.n_head), attn_pdrop_(config.attn_pdrop) {
  query = register_module("query", nn::Linear(config.n_embd, config.n_embd));
  key = register_module("key", nn::Linear(config.n_embd, config.n_embd));
  value = register_module("value", nn::Linear(config.n_embd, config.n_embd));
}

torch::Tensor BertSelfAttentionImpl::forward(const torch::Tensor& x_BTC,
                                             const torch::Tensor& seen_B11T) {
  const auto B = x_BTC.size(0);
  const auto T = x_BTC.size(1);
  const auto C = x_BTC.size(2);
  const auto in_heads = [&](nn::Linear& linear) {
    return at::linear(x_BTC, linear->weight, linear->bias)
        .view({B, T, n_head_, C / n_head_})
        .transpose(1, 2);
  };
  const auto mask = seen_B11T.defined() ? std::optional(seen_B11T) : std::nullopt;
  const auto y_BHTD = attention(in_heads(query), in_heads(key), in_heads(value), mask,
                                is_training() ? attn_pdrop_ : 0.0);
  return y_BHTD.transpose(1, 2).reshape({B, T, C});
}

BertOutputImpl::BertOutputImpl(const BertConfig& config, int64_t inputs) {
  dense = register_module("dense", nn::Linear(inputs, config.n_embd));
  norm = register_module("LayerNorm", bert_norm(config.n_embd));
  dropout = register_module("dropout", nn::Dropout(config.hidden_pdrop));
}

torch::Tensor BertOutputImpl::forward(const torch::Tensor& x_BTI,
                                      const torch::Tensor& residual_BTC) {
  return norm(dropout(at::linear(x_BTI, dense->weight, dense->bias)) + residual_BTC);
}

BertLayerImpl::BertLayerImpl(const BertConfig& config)
    : self(config),
      attention_output(config, config.n_embd),
      intermediate(config.n_embd, config.intermediate),
      output(config, config.intermediate) {
  register_module("attention",
                  named_group(std::pair{"self", self}, std::pair{"output", attention_output}));
  register_module("intermediate", named_group(std::pair{"dense", intermediate}));
  register_module("output", output);
}

torch::Tensor BertLayerImpl::forward(const torch::Tensor& x_BTC, const torch::Tensor& seen_B11T) {
  return with_weights(x_BTC, [&](const torch::Tensor& x) {
    const auto attended_BTC = attention_output(self(x, seen_B11T), x);
    const auto inner_BTI = at::linear(attended_BTC, intermediate->weight, intermediate->bias);
    return output(at::gelu(inner_BTI), attended_BTC);
  });
}

BertImpl::BertImpl(const BertConfig& config, int64_t vocab_size, int64_t positions) {
  embeddings = register_module("embeddings", BertEmbeddings(config, vocab_size, positions));
  for (layer = nn::ModuleList(); static_cast<int64_t>(layer->size()) < config.n_layer;)
    layer->push_back(BertLayer(config));
  register_module("encoder", named_group(std::pair{"layer", layer}));
}

torch::Tensor BertImpl::forward(const torch::Tensor& idx_BT, const torch::Tensor& seen_BT) {
  const auto seen_B11T = seen_BT.defined() ? seen_BT.unsqueeze(1).unsqueeze(1) : torch::Tensor();
  auto x_BTC = embeddings(idx_BT);
  for (const auto& each : *layer) x_BTC = each->as<BertLayer>()->forward(x_BTC, seen_B11T);
  return x_BTC;
}

void initialise_bert(torch::nn::Module& module, uint64_t seed) {
  const torch::NoGradGuard no_grad;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  for (auto& item : module.named_parameters()) {
    if (item.key().ends_with("bias")) {
      item.value().zero_();
    } else if (item.value().dim() == 1) {
      item.value().fill_(1.0);
    } else {
      item.value().normal_(0.0, kBertInitStd, generator);
    }
  }
}

std::vector<ModelParameter> bert_parameters(const torch::nn::Module& module) {
  std::vector<ModelParameter> result;
  for (const auto& item : module.named_parameters())
    result.push_back({item.key(), item.value(), bert_role(item.key(), item.value().dim())});
  return result;
}

int64_t parameter_count(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const auto& tensor : module.parameters()) count += tensor.numel();
  return count;
}

BertForMaskedLmImpl::BertForMaskedLmImpl(const BertConfig& config, int64_t vocab_size,
                                         int64_t positions, uint64_t seed)
    : transform(config.n_embd, config.n_embd),
      transform_norm(bert_norm(config.n_embd)),
      positions_(positions),
      vocab_size_(vocab_size) {
  bert = register_module("bert", Bert(config, vocab_size, positions));
  const auto predictions =
      named_group(std::pair{"transform", named_group(std::pair{"dense", transform},
                                                     std::pair{"LayerNorm", transform_norm})});
  decoder_bias_V = predictions->register_parameter("bias", torch::zeros({vocab_size}));
  register_module("cls", named_group(std::pair{"predictions", predictions}));
  initialise_bert(*this, seed);
}

torch::Tensor BertForMaskedLmImpl::predict(const torch::Tensor& x_XC) {
  return torch::linear(
      transform_norm(at::gelu(at::linear(x_XC, transform->weight, transform->bias))),
      bert->embeddings->word_embeddings->weight, decoder_bias_V);
}

torch::Tensor BertForMaskedLmImpl::forward(const torch::Tensor& idx_BT,
                                           const torch::Tensor& seen_BT) {
  TORCH_CHECK(idx_BT.size(1) <= positions_, "a sequence of ", idx_BT.size(1),
              " tokens is longer than the ", positions_, " positions");
  return predict(bert(idx_BT, seen_BT));
}

torch::Tensor BertForMaskedLmImpl::logits_at(const torch::Tensor& idx_BT,
                                             const torch::Tensor& seen_BT,
                                             const torch::Tensor& chosen_M) {
  return predict(bert(idx_BT, seen_BT).flatten(0, 1).index_select(0, chosen_M));
}

}  // namespace ddp::train
