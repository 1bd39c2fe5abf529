#include "trainer/model/gpt/gpt.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string_view>

#include "trainer/model/blocks/activation_checkpoint.h"
#include "trainer/model/blocks/attention.h"
#include "trainer/model/blocks/layer_seeds.h"
#include "trainer/model/blocks/uninitialized_layers.h"
#include "trainer/model/gpt/gpt_architecture.h"
#include "trainer/model/ops/fused_ops.h"

namespace ddp::train {
namespace nn = torch::nn;

namespace {

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

constexpr double kInitStd = 0.02;

double active_p(nn::Dropout& dropout) {
  return dropout->is_training() ? dropout->options.p() : 0.0;
}

/// The fused products know no adapters.
bool fuses_product(const torch::Tensor& x, const AdaptableLinear& linear) {
  return fused::takes_products(x) && !linear->adapted();
}

bool are_divided(const fused::Places& rows) { return rows.here != rows.all; }

/// The dropout of this rank's rows of each sequence, [B, S, C], by the masks of all.
torch::Tensor dropped(const torch::Tensor& x_BSC, nn::Dropout& dropout, const fused::Places& rows) {
  const double p = active_p(dropout);
  if (!are_divided(rows) || p == 0.0) return dropout(x_BSC);
  const auto kept_BTC = torch::empty({x_BSC.size(0), rows.all, x_BSC.size(2)}, x_BSC.options())
                            .bernoulli_(1.0 - p)
                            .div_(1.0 - p);
  // A copy: the backward pass would keep all of a view's tensor.
  return x_BSC * kept_BTC.narrow(1, rows.first, rows.here).clone();
}

/// This rank's part of a product that ranks add up, without the bias.
torch::Tensor own_product(const torch::Tensor& x, const AdaptableLinear& linear) {
  return gpu::takes_product(x) ? gpu::linear(x, linear->weight, {}) : at::linear(x, linear->weight);
}

/// The sum of the ranks' products, of which this one computes its part, and the bias.
torch::Tensor shared_projection(const torch::Tensor& x, const AdaptableLinear& linear,
                                const TensorRanksPtr& ranks, const fused::Places& rows) {
  const auto product = leave_layers(own_product(x, linear), ranks, are_divided(rows));
  return product + linear->bias.to(product.scalar_type());
}

/// residual + dropout(the product of all ranks, of which this one computes a part).
torch::Tensor add_shared_projection(const torch::Tensor& x, AdaptableLinear& linear,
                                    nn::Dropout& dropout, const torch::Tensor& residual, bool fused,
                                    const TensorRanksPtr& ranks, const fused::Places& rows) {
  if (!fused || !fused::takes(residual))
    return residual + dropped(shared_projection(x, linear, ranks, rows), dropout, rows);
  const auto product = leave_layers(own_product(x, linear), ranks, are_divided(rows));
  return fused::bias_dropout_add(product.to(torch::kFloat32), linear->bias, residual,
                                 active_p(dropout), rows);
}

/// residual + dropout(linear(x)).
torch::Tensor add_projection(const torch::Tensor& x, AdaptableLinear& linear, nn::Dropout& dropout,
                             const torch::Tensor& residual, bool fused) {
  if (!fused || !fused::takes(residual)) return residual + dropout(linear(x));
  if (!fuses_product(x, linear))
    return fused::dropout_add(linear(x).to(torch::kFloat32), residual, active_p(dropout));
  return fused::linear_dropout_add(x, linear->weight, linear->bias, residual, active_p(dropout));
}

gpu::NormWeights weights_of(const nn::LayerNorm& norm) {
  return {norm->weight, norm->bias, norm->options.eps()};
}

}  // namespace

CausalSelfAttentionImpl::CausalSelfAttentionImpl(const GptConfig& config,
                                                 const TensorRanksPtr& ranks)
    : ranks_(ranks),
      n_head_(config.n_head / (ranks ? ranks->size() : 1)),
      head_dim_(config.n_embd / config.n_head),
      attn_pdrop_(config.attn_pdrop),
      fused_(config.fused_cpu_kernels) {
  if (ranks) heads_ = {n_head_, config.n_head, n_head_ * ranks->rank()};
  c_attn = register_module("c_attn", AdaptableLinear(config.n_embd, 3 * config.n_embd));
  c_proj = register_module("c_proj", AdaptableLinear(config.n_embd, config.n_embd));
  resid_dropout = register_module("resid_dropout", nn::Dropout(config.resid_pdrop));
}

torch::Tensor CausalSelfAttentionImpl::forward(const torch::Tensor& x_BTC,
                                               const torch::Tensor& residual_BTC,
                                               const AttentionScope& scope) {
  if (!ranks_)
    return add_projection(heads(x_BTC, scope), c_proj, resid_dropout, residual_BTC, fused_);
  const auto y_BTC = heads(enter_layers(x_BTC, ranks_, are_divided(scope.rows)), scope);
  return add_shared_projection(y_BTC, c_proj, resid_dropout, residual_BTC, fused_, ranks_,
                               scope.rows);
}

torch::Tensor CausalSelfAttentionImpl::branch(const torch::Tensor& x_BTC,
                                              const AttentionScope& scope) {
  if (!ranks_) return resid_dropout(c_proj(heads(x_BTC, scope)));
  const auto y_BTC = heads(enter_layers(x_BTC, ranks_, are_divided(scope.rows)), scope);
  return dropped(shared_projection(y_BTC, c_proj, ranks_, scope.rows), resid_dropout, scope.rows);
}

torch::Tensor CausalSelfAttentionImpl::heads(const torch::Tensor& x_BTC,
                                             const AttentionScope& scope) {
  const auto B = x_BTC.size(0);
  const auto T = x_BTC.size(1);
  const bool whole_row = scope.cache == nullptr && !scope.mask.defined();
  if (fused_ && whole_row && fused::takes(x_BTC) && fused::takes_attention(T, head_dim_)) {
    const auto qkv_BTE =
        fuses_product(x_BTC, c_attn)
            ? fused::linear_dropout_add(x_BTC, c_attn->weight, c_attn->bias, {}, 0.0)
            : c_attn(x_BTC).to(torch::kFloat32);
    return fused::causal_attention(qkv_BTE, n_head_, is_training() ? attn_pdrop_ : 0.0, heads_);
  }
  auto qkv = c_attn(x_BTC).view({B, T, 3, n_head_, head_dim_}).unbind(2);
  for (auto& x_BTHD : qkv) x_BTHD = x_BTHD.transpose(1, 2);
  return attend(qkv, scope).transpose(1, 2).reshape({B, T, n_head_ * head_dim_});
}

torch::Tensor CausalSelfAttentionImpl::attend(const std::vector<torch::Tensor>& qkv,
                                              const AttentionScope& scope) const {
  const double dropout = is_training() ? attn_pdrop_ : 0.0;
  const auto mask = scope.mask.defined() ? std::optional(scope.mask) : std::nullopt;
  if (scope.cache == nullptr) {
    if (dropout > 0.0 && ranks_) return attend_with_masks_of_all(qkv, scope.mask);
    return attention(qkv[0], qkv[1], qkv[2], mask, dropout, /*is_causal=*/!mask);
  }
  const int64_t T = qkv[0].size(2);
  KeyValueCache::Layer& kept = scope.cache->layers[scope.layer];
  const auto keys = scope.cache->add(kept.keys_BHTD, qkv[1]);
  const auto values = scope.cache->add(kept.values_BHTD, qkv[2]);
  if (mask) return attention(qkv[0], keys, values, mask);
  return attention(qkv[0], keys, values, /*attn_mask=*/{}, 0.0, /*is_causal=*/T > 1);
}

// torch's attention would draw the same numbers for the heads of each rank.
torch::Tensor CausalSelfAttentionImpl::attend_with_masks_of_all(
    const std::vector<torch::Tensor>& qkv, const torch::Tensor& mask) const {
  const int64_t T = qkv[0].size(2);
  const auto visible =
      mask.defined() ? mask : torch::ones({T, T}, qkv[0].options().dtype(torch::kBool)).tril();
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_dim_));
  const auto scores_BHTT = at::matmul(qkv[0] * scale, qkv[1].transpose(-2, -1));
  const auto shares_BHTT =
      scores_BHTT.masked_fill(visible.logical_not(), -std::numeric_limits<double>::infinity())
          .softmax(-1);
  const auto kept_BHTT = torch::empty({qkv[0].size(0), heads_.all, T, T}, shares_BHTT.options())
                             .bernoulli_(1.0 - attn_pdrop_)
                             .div_(1.0 - attn_pdrop_)
                             .narrow(1, heads_.first, heads_.here)
                             .clone();  // the backward pass would keep all of a view's tensor
  return at::matmul(shares_BHTT * kept_BHTT, qkv[2]);
}

MlpImpl::MlpImpl(const GptConfig& config, const TensorRanksPtr& ranks)
    : ranks_(ranks),
      gelu_approximation_(config.activation == Activation::kGeluTanh ? "tanh" : "none"),
      fused_(config.fused_cpu_kernels) {
  c_fc = register_module("c_fc", AdaptableLinear(config.n_embd, 4 * config.n_embd));
  c_proj = register_module("c_proj", AdaptableLinear(4 * config.n_embd, config.n_embd));
  dropout = register_module("dropout", nn::Dropout(config.resid_pdrop));
}

torch::Tensor MlpImpl::forward(const torch::Tensor& x_BTC, const torch::Tensor& residual_BTC,
                               const fused::Places& rows) {
  if (!ranks_) return add_projection(inner(x_BTC), c_proj, dropout, residual_BTC, fused_);
  return add_shared_projection(inner(enter_layers(x_BTC, ranks_, are_divided(rows))), c_proj,
                               dropout, residual_BTC, fused_, ranks_, rows);
}

torch::Tensor MlpImpl::branch(const torch::Tensor& x_BTC, const fused::Places& rows) {
  if (!ranks_) return dropout(c_proj(inner(x_BTC)));
  const auto inner_BTI = inner(enter_layers(x_BTC, ranks_, are_divided(rows)));
  return dropped(shared_projection(inner_BTI, c_proj, ranks_, rows), dropout, rows);
}

torch::Tensor MlpImpl::inner(const torch::Tensor& x_BTC) {
  const bool tanh = gelu_approximation_ == "tanh";
  if (fused_ && fuses_product(x_BTC, c_fc))
    return fused::linear_gelu(x_BTC, c_fc->weight, c_fc->bias, tanh);
  if (gpu::takes_product(x_BTC) && !c_fc->adapted())
    return gpu::linear_gelu(x_BTC, c_fc->weight, c_fc->bias, tanh);
  return at::gelu(c_fc(x_BTC), gelu_approximation_);
}

BlockImpl::BlockImpl(const GptConfig& config, const TensorRanksPtr& ranks) {
  const nn::LayerNormOptions norm({config.n_embd});
  ln_1 = register_module("ln_1", nn::LayerNorm(norm));
  attn = register_module("attn", CausalSelfAttention(config, ranks));
  ln_2 = register_module("ln_2", nn::LayerNorm(norm));
  mlp = register_module("mlp", Mlp(config, ranks));
}

torch::Tensor BlockImpl::forward(const torch::Tensor& x_BTC, const AttentionScope& scope) {
  return with_weights(x_BTC, [&](const torch::Tensor& x) {
    if (gpu::takes_norm(x)) return unadded({x}, scope).sum();
    const auto attended_BTC = attn(ln_1(x), x, scope);
    return mlp(ln_2(attended_BTC), attended_BTC, scope.rows);
  });
}

gpu::Stream BlockImpl::unadded(const gpu::Stream& stream, const AttentionScope& scope) {
  const auto before = gpu::add_norm(stream.x, stream.left(), weights_of(ln_1));
  const auto attended = gpu::add_norm(before.sum, attn->branch(before.y, scope), weights_of(ln_2));
  return {attended.sum, mlp->branch(attended.y, scope.rows)};
}

TransformerImpl::TransformerImpl(const GptConfig& config, int64_t vocab_size, int64_t block_size,
                                 const TensorRanksPtr& ranks)
    : ranks_(ranks),
      checkpointed_(config.activation_checkpointing),
      fused_(config.fused_cpu_kernels),
      drops_(config.embd_pdrop > 0 || config.resid_pdrop > 0 || config.attn_pdrop > 0) {
  wte = register_module("wte", uninitialized_embedding(vocab_size, config.n_embd));
  wpe = register_module("wpe", uninitialized_embedding(block_size, config.n_embd));
  drop = register_module("drop", nn::Dropout(config.embd_pdrop));
  h = register_module("h", nn::ModuleList());
  for (int64_t i = 0; i < config.n_layer; ++i) h->push_back(Block(config, ranks));
  ln_f = register_module("ln_f", nn::LayerNorm(nn::LayerNormOptions({config.n_embd})));
}

// A pass with a cache takes one token at a time.
fused::Places TransformerImpl::rows_in_pass(int64_t length, const TokenContext& context) const {
  if (context.cache != nullptr || !divides_rows(ranks_, length, is_training())) return {};
  const int64_t here = length / ranks_->size();
  return {here, length, here * ranks_->rank()};
}

torch::Tensor TransformerImpl::embed(const torch::Tensor& idx_BT, const TokenContext& context,
                                     const IndexRange& tokens, const fused::Places& rows) {
  const bool divided = are_divided(rows);
  auto positions = context.positions(idx_BT);
  if (divided) positions = positions.narrow(-1, rows.first, rows.here);
  const auto tokens_BTC =
      ranks_ ? leave_layers(lookup_own(idx_BT, wte->weight, tokens), ranks_, divided) : wte(idx_BT);
  const auto x_BTC = tokens_BTC + wpe(positions);
  return fused_ && fused::takes(x_BTC) ? fused::dropout(x_BTC, active_p(drop), rows)
                                       : dropped(x_BTC, drop, rows);
}

torch::Tensor TransformerImpl::stage(const torch::Tensor& x_BTC, const LayerRange& layers,
                                     const torch::Tensor& idx_BT, const TokenContext& context,
                                     const IndexRange& tokens) {
  LayerSeeds seeds(idx_BT.device(), is_training() && drops_);
  const auto rows = rows_in_pass(idx_BT.size(1), context);
  const auto mask = context.mask(idx_BT);
  gpu::Stream stream{layers.begin == 0 ? embed(idx_BT, context, tokens, rows) : x_BTC};
  for (int64_t i = layers.begin; i < layers.end; ++i) {
    seeds.begin(i);
    stream = through_block(i, stream, context, mask, rows);
  }
  if (layers.end < static_cast<int64_t>(h->size())) return stream.sum();
  const auto y_BTC = gpu::takes_norm(stream.x)
                         ? gpu::add_norm(stream.x, stream.left(), weights_of(ln_f)).y
                         : ln_f(stream.sum());
  return ranks_ && context.cache == nullptr ? enter_layers(y_BTC, ranks_, are_divided(rows))
                                            : y_BTC;
}

gpu::Stream TransformerImpl::through_block(int64_t index, const gpu::Stream& stream,
                                           const TokenContext& context, const torch::Tensor& mask,
                                           const fused::Places& rows) {
  const auto i = static_cast<std::size_t>(index);
  auto* block = h[i]->as<Block>();
  if (context.cache != nullptr) return {block->forward(stream.sum(), {context.cache, i, mask, {}})};
  const AttentionScope scope{nullptr, 0, mask, rows};
  if (checkpointed_ && is_training())
    return {checkpoint([block, scope](const torch::Tensor& x) { return block->forward(x, scope); },
                       stream.sum(), block->parameters())};
  if (gpu::takes_norm(stream.x) && !block->has_hooks()) return block->unadded(stream, scope);
  return {block->forward(stream.sum(), scope)};
}

void TransformerImpl::keep(const ModelPart& part, bool with_table) {
  h = replace_module("h", kept_layers(*h, part));
  if (!part.has_first()) {
    unregister_module("wpe");
    wpe = nullptr;
    if (!with_table) {
      unregister_module("wte");
      wte = nullptr;
    }
  }
  if (!part.has_last()) {
    unregister_module("ln_f");
    ln_f = nullptr;
  }
}

GPTImpl::GPTImpl(const GptConfig& config, int64_t vocab_size, int64_t block_size,
                 std::optional<uint64_t> seed, const TensorRanksPtr& ranks)
    : CausalModel({vocab_size, block_size, config.loss_chunk_size, config.pad_vocab_to_multiple_of,
                   ranks, gpt_layout(config, vocab_size, block_size)}),
      n_layer_(config.n_layer),
      tied_(config.tie_weights) {
  transformer = register_module("transformer", Transformer(config, vocab_size, block_size, ranks));
  if (!tied_) {
    lm_head =
        register_module("lm_head", uninitialized_linear(config.n_embd, vocab_size, /*bias=*/false));
  }
  if (seed) GPTImpl::draw_weights(*seed);
}

void GPTImpl::draw_weights(uint64_t seed) {
  const torch::NoGradGuard no_grad;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const double residual_std = kInitStd / std::sqrt(2.0 * static_cast<double>(n_layer_));
  draw_each([&](const std::string& name, torch::Tensor& tensor) {
    if (ends_with(name, ".bias")) {
      tensor.zero_();
    } else if (tensor.dim() == 1) {
      tensor.fill_(1.0);
    } else {
      tensor.normal_(0.0, ends_with(name, "c_proj.weight") ? residual_std : kInitStd, generator);
    }
  });
}

void GPTImpl::keep(const ModelPart& part) {
  transformer->keep(part, tied_ && part.has_last());
  if (tied_ || part.has_last()) return;
  unregister_module("lm_head");
  lm_head = nullptr;
}

torch::Tensor GPTImpl::tied_table() const {
  return tied_ && transformer->wte ? transformer->wte->weight : torch::Tensor();
}

const torch::Tensor& GPTImpl::head_weight() const {
  return lm_head ? lm_head->weight : transformer->wte->weight;
}

std::shared_ptr<CausalModel> make_gpt(const Config& config, int64_t vocab_size,
                                      std::optional<uint64_t> seed, const TensorRanksPtr& ranks) {
  return GPT(config.gpt, vocab_size, config.data.block_size, seed, ranks).ptr();
}

}  // namespace ddp::train
