#include "trainer/model/gpt.h"

#include <cmath>
#include <string_view>

namespace ddp::train {
namespace nn = torch::nn;

namespace {

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

constexpr double kInitStd = 0.02;

}  // namespace

CausalSelfAttentionImpl::CausalSelfAttentionImpl(const GptConfig& config)
    : n_head_(config.n_head), attn_pdrop_(config.attn_pdrop) {
  c_attn = register_module("c_attn", nn::Linear(config.n_embd, 3 * config.n_embd));
  c_proj = register_module("c_proj", nn::Linear(config.n_embd, config.n_embd));
  resid_dropout = register_module("resid_dropout", nn::Dropout(config.resid_pdrop));
}

torch::Tensor CausalSelfAttentionImpl::forward(const torch::Tensor& x_BTC) {
  const auto B = x_BTC.size(0);
  const auto T = x_BTC.size(1);
  const auto C = x_BTC.size(2);
  const auto qkv =
      c_attn(x_BTC).view({B, T, 3, n_head_, C / n_head_}).permute({2, 0, 3, 1, 4}).unbind(0);
  const double dropout = is_training() ? attn_pdrop_ : 0.0;
  const auto y_BHTD =
      at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], /*attn_mask=*/{}, dropout,
                                       /*is_causal=*/true);
  return resid_dropout(c_proj(y_BHTD.transpose(1, 2).reshape({B, T, C})));
}

MlpImpl::MlpImpl(const GptConfig& config)
    : gelu_approximation_(config.activation == Activation::kGeluTanh ? "tanh" : "none") {
  c_fc = register_module("c_fc", nn::Linear(config.n_embd, 4 * config.n_embd));
  c_proj = register_module("c_proj", nn::Linear(4 * config.n_embd, config.n_embd));
  dropout = register_module("dropout", nn::Dropout(config.resid_pdrop));
}

torch::Tensor MlpImpl::forward(const torch::Tensor& x_BTC) {
  return dropout(c_proj(at::gelu(c_fc(x_BTC), gelu_approximation_)));
}

BlockImpl::BlockImpl(const GptConfig& config) {
  const nn::LayerNormOptions norm({config.n_embd});
  ln_1 = register_module("ln_1", nn::LayerNorm(norm));
  attn = register_module("attn", CausalSelfAttention(config));
  ln_2 = register_module("ln_2", nn::LayerNorm(norm));
  mlp = register_module("mlp", Mlp(config));
}

torch::Tensor BlockImpl::forward(torch::Tensor x_BTC) {
  x_BTC = x_BTC + attn(ln_1(x_BTC));
  return x_BTC + mlp(ln_2(x_BTC));
}

TransformerImpl::TransformerImpl(const GptConfig& config, int64_t vocab_size, int64_t block_size) {
  wte = register_module("wte", nn::Embedding(vocab_size, config.n_embd));
  wpe = register_module("wpe", nn::Embedding(block_size, config.n_embd));
  drop = register_module("drop", nn::Dropout(config.embd_pdrop));
  h = register_module("h", nn::ModuleList());
  for (int64_t i = 0; i < config.n_layer; ++i) h->push_back(Block(config));
  ln_f = register_module("ln_f", nn::LayerNorm(nn::LayerNormOptions({config.n_embd})));
}

torch::Tensor TransformerImpl::forward(const torch::Tensor& idx_BT) {
  const auto T = idx_BT.size(1);
  const auto positions_T =
      torch::arange(T, torch::TensorOptions(torch::kInt64).device(idx_BT.device()));
  auto x_BTC = drop(wte(idx_BT) + wpe(positions_T));
  for (const auto& block : *h) x_BTC = block->as<Block>()->forward(x_BTC);
  return ln_f(x_BTC);
}

GPTImpl::GPTImpl(const GptConfig& config, int64_t vocab_size, int64_t block_size, uint64_t seed)
    : n_layer_(config.n_layer), vocab_size_(vocab_size), block_size_(block_size) {
  transformer = register_module("transformer", Transformer(config, vocab_size, block_size));
  if (!config.tie_weights) {
    lm_head = register_module("lm_head",
                              nn::Linear(nn::LinearOptions(config.n_embd, vocab_size).bias(false)));
  }
  initialise(seed);
}

void GPTImpl::initialise(uint64_t seed) {
  const torch::NoGradGuard no_grad;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const double residual_std = kInitStd / std::sqrt(2.0 * static_cast<double>(n_layer_));
  for (auto& item : named_parameters()) {
    const std::string& name = item.key();
    torch::Tensor& tensor = item.value();
    if (ends_with(name, ".bias")) {
      tensor.zero_();
    } else if (tensor.dim() == 1) {
      tensor.fill_(1.0);
    } else {
      tensor.normal_(0.0, ends_with(name, "c_proj.weight") ? residual_std : kInitStd, generator);
    }
  }
}

torch::Tensor GPTImpl::forward(const torch::Tensor& idx_BT) {
  TORCH_CHECK(idx_BT.size(1) <= block_size_, "a sequence of ", idx_BT.size(1),
              " tokens is longer than block_size ", block_size_);
  const auto x_BTC = transformer(idx_BT);
  return lm_head ? lm_head(x_BTC) : torch::linear(x_BTC, transformer->wte->weight);
}

torch::Tensor GPTImpl::loss(const torch::Tensor& idx_BT, const torch::Tensor& targets_BT) {
  const auto logits_NV = forward(idx_BT).view({-1, vocab_size_}).to(torch::kFloat32);
  return at::cross_entropy_loss(logits_NV, targets_BT.reshape({-1}), {}, at::Reduction::Mean,
                                /*ignore_index=*/-1);
}

torch::Tensor GPTImpl::loss_sum_of(const torch::Tensor& logits_BTV,
                                   const torch::Tensor& targets_BT) {
  const auto logits_NV = logits_BTV.view({-1, logits_BTV.size(-1)}).to(torch::kFloat32);
  return at::cross_entropy_loss(logits_NV, targets_BT.reshape({-1}), {}, at::Reduction::Sum,
                                /*ignore_index=*/-1);
}

std::vector<ModelParameter> GPTImpl::model_parameters() const {
  std::vector<ModelParameter> result;
  for (const auto& item : named_parameters()) {
    const std::string& name = item.key();
    const bool embedding = ends_with(name, "wte.weight") || ends_with(name, "wpe.weight");
    result.push_back({name, item.value(), item.value().dim() >= 2 && !embedding});
  }
  return result;
}

int64_t GPTImpl::parameter_count() const {
  int64_t count = 0;
  for (const auto& tensor : parameters()) count += tensor.numel();
  return count;
}

}  // namespace ddp::train
