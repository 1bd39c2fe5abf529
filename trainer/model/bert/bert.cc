#include "trainer/model/bert/bert.h"

#include <memory>

#include "trainer/model/bert_family.h"
#include "trainer/model/blocks/attention.h"
#include "trainer/model/cost/bert_cost.h"

namespace ddp::train {
namespace nn = torch::nn;

namespace {

constexpr double kBertInitStd = 0.02;

}  // namespace

nn::LayerNorm bert_norm(const BertConfig& config) {
  return nn::LayerNorm(nn::LayerNormOptions({config.n_embd}).eps(config.layer_norm_eps));
}

nn::Module& named_group(nn::Module& root, const std::string& name) {
  const auto children = root.named_children();
  return children.contains(name) ? *children[name]
                                 : *root.register_module(name, std::make_shared<nn::Module>());
}

BertEmbeddingsImpl::BertEmbeddingsImpl(const BertConfig& config, int64_t vocab_size,
                                       int64_t positions)
    : hidden_pdrop_(config.hidden_pdrop), position_offset_(config.position_offset) {
  const auto table = [&](const char* name, int64_t rows) {
    return register_module(name, nn::Embedding(rows, config.n_embd));
  };
  word_embeddings =
      register_module("word_embeddings", AdaptableEmbedding(vocab_size, config.n_embd));
  position_embeddings = table("position_embeddings", positions + position_offset_);
  if (config.type_vocab_size > 0)
    token_type_embeddings = table("token_type_embeddings", config.type_vocab_size);
  norm = register_module("LayerNorm", bert_norm(config));
}

torch::Tensor BertEmbeddingsImpl::forward(const torch::Tensor& idx_BT,
                                          const torch::Tensor& types_BT,
                                          const torch::Tensor& prompt_PC) {
  auto x_BTC = word_embeddings(idx_BT);
  const int64_t P = prompt_PC.defined() ? prompt_PC.size(0) : 0;
  if (P > 0)
    x_BTC = at::cat({prompt_PC.to(x_BTC.dtype()).expand({x_BTC.size(0), -1, -1}), x_BTC}, 1);
  const auto positions = torch::arange(position_offset_, position_offset_ + x_BTC.size(1),
                                       torch::TensorOptions(torch::kInt64).device(idx_BT.device()));
  if (types_BT.defined())
    x_BTC = x_BTC + token_type_embeddings(at::constant_pad_nd(types_BT, {P, 0}));
  else if (token_type_embeddings)
    x_BTC = x_BTC + token_type_embeddings->weight.select(0, 0);
  return at::dropout(norm(x_BTC + position_embeddings(positions)), hidden_pdrop_, is_training());
}

BertLayerImpl::BertLayerImpl(const BertConfig& config)
    : n_head_(config.n_head),
      hidden_pdrop_(config.hidden_pdrop),
      attn_pdrop_(config.attn_pdrop),
      drops_attention_output_(traits_of(config.family).drops_attention_output) {
  const BertTraits& traits = traits_of(config.family);
  const int64_t width = config.n_embd;
  const auto linear = [&](const char* path, int64_t in, int64_t out) {
    return register_at(*this, path, AdaptableLinear(in, out));
  };
  query = linear(traits.query, width, width);
  key = linear(traits.key, width, width);
  value = linear(traits.value, width, width);
  attention_output = linear(traits.attention_output, width, width);
  attention_norm = register_at(*this, traits.attention_norm, bert_norm(config));
  inner = linear(traits.inner, width, config.intermediate);
  output = linear(traits.output, config.intermediate, width);
  output_norm = register_at(*this, traits.output_norm, bert_norm(config));
}

torch::Tensor BertLayerImpl::attend(const torch::Tensor& x_BTC, const torch::Tensor& seen_B11T) {
  const auto in_heads = [&](AdaptableLinear& linear) {
    return linear(x_BTC).unflatten(-1, {n_head_, -1}).transpose(1, 2);
  };
  const auto mask = seen_B11T.defined() ? std::optional(seen_B11T) : std::nullopt;
  const auto y_BHTD = attention(in_heads(query), in_heads(key), in_heads(value), mask,
                                is_training() ? attn_pdrop_ : 0.0);
  return y_BHTD.transpose(1, 2).flatten(-2);
}

torch::Tensor BertLayerImpl::drop(const torch::Tensor& x) const {
  return at::dropout(x, hidden_pdrop_, is_training());
}

torch::Tensor BertLayerImpl::forward(const torch::Tensor& x_BTC, const torch::Tensor& seen_B11T) {
  return with_weights(x_BTC, [&](const torch::Tensor& x) {
    const auto y_BTC = attention_output(attend(x, seen_B11T));
    const auto attended_BTC = attention_norm((drops_attention_output_ ? drop(y_BTC) : y_BTC) + x);
    return output_norm(drop(output(at::gelu(inner(attended_BTC)))) + attended_BTC);
  });
}

BertImpl::BertImpl(const BertConfig& config, int64_t vocab_size, int64_t positions) {
  embeddings = register_module("embeddings", BertEmbeddings(config, vocab_size, positions));
  for (layer = nn::ModuleList(); static_cast<int64_t>(layer->size()) < config.n_layer;)
    layer->push_back(BertLayer(config));
  register_at(*this, traits_of(config.family).layers, layer);
}

torch::Tensor BertImpl::forward(const torch::Tensor& idx_BT, const torch::Tensor& seen_BT,
                                const torch::Tensor& types_BT, const torch::Tensor& prompt_PC) {
  auto x_BTC = embeddings(idx_BT, types_BT, prompt_PC);
  torch::Tensor seen_B11T;
  if (seen_BT.defined())
    seen_B11T = at::constant_pad_nd(seen_BT, {x_BTC.size(1) - idx_BT.size(1), 0}, true)
                    .unsqueeze(1)
                    .unsqueeze(1);
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
  return count + quantized_count(module);
}

BertForMaskedLmImpl::BertForMaskedLmImpl(const BertConfig& config, int64_t vocab_size,
                                         int64_t positions, uint64_t seed)
    : positions_(positions), vocab_size_(vocab_size) {
  const BertTraits& traits = traits_of(config.family);
  bert = register_module(traits.base, Bert(config, vocab_size, positions));
  const std::string bias = traits.decoder_bias;
  const std::size_t dot = bias.rfind('.');
  auto& head = *register_at(*this, bias.substr(0, dot), std::make_shared<nn::Module>());
  decoder_bias_V = head.register_parameter(bias.substr(dot + 1), torch::zeros({vocab_size}));
  transform = register_at(*this, traits.transform, nn::Linear(config.n_embd, config.n_embd));
  transform_norm = register_at(*this, traits.transform_norm, bert_norm(config));
  initialise_bert(*this, seed);
}

torch::Tensor BertForMaskedLmImpl::predict(const torch::Tensor& x_XC) {
  return torch::linear(transform_norm(at::gelu(transform(x_XC))),
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
