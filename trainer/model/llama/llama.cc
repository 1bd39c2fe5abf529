#include "trainer/model/llama/llama.h"

#include <cmath>
#include <numbers>
#include <string>

#include "trainer/model/blocks/activation_checkpoint.h"
#include "trainer/model/blocks/attention.h"
#include "trainer/model/blocks/chunked_loss.h"
#include "trainer/model/blocks/uninitialized_layers.h"
#include "trainer/model/llama/llama_cost.h"
#include "trainer/model/llama/llama_ops.h"
#include "trainer/model/ops/fused_ops.h"

namespace ddp::train {
namespace {

/// [.., T, D] with the pairs (i, i + D / 2) turned by their angles.
torch::Tensor rotated(const torch::Tensor& x, const LlamaPass& pass) {
  const auto halves = x.chunk(2, -1);
  return torch::cat({halves[0] * pass.cos - halves[1] * pass.sin,
                     halves[1] * pass.cos + halves[0] * pass.sin},
                    -1)
      .to(x.scalar_type());
}

/// [B, K, T, D] -> [B, H, T, D]: each head for a group of query heads.
torch::Tensor for_query_heads(const torch::Tensor& x_BKTD, int64_t heads) {
  const auto sizes = x_BKTD.sizes();
  if (sizes[1] == heads) return x_BKTD;
  return x_BKTD.unsqueeze(2)
      .expand({sizes[0], sizes[1], heads / sizes[1], sizes[2], sizes[3]})
      .reshape({sizes[0], heads, sizes[2], sizes[3]});
}

/// One query for each row, which sees every key that the mask leaves. The queries of a group attend
/// to their head's keys together, so that these are not repeated.
torch::Tensor attend_to_cache(const torch::Tensor& q_BH1D, const torch::Tensor& k_BKTD,
                              const torch::Tensor& v_BKTD, const torch::Tensor& mask_B11T) {
  const auto q_BKGD = q_BH1D.reshape({q_BH1D.size(0), k_BKTD.size(1), -1, q_BH1D.size(3)});
  const auto mask = mask_B11T.defined() ? std::optional<torch::Tensor>(mask_B11T) : std::nullopt;
  return attention(q_BKGD, k_BKTD, v_BKTD, mask).reshape(q_BH1D.sizes());
}

/// Llama 3's scaling: low frequencies are divided by the factor, high ones kept, those between
/// blended.
torch::Tensor scaled_as_llama3(const torch::Tensor& frequencies, const RopeScaling& scaling) {
  const auto length = static_cast<double>(scaling.original_max_position_embeddings);
  const double low = scaling.low_freq_factor;
  const double high = scaling.high_freq_factor;
  const auto wavelengths = 2 * std::numbers::pi / frequencies;
  const auto slow =
      torch::where(wavelengths > length / low, frequencies / scaling.factor, frequencies);
  const auto share = (length / wavelengths - low) / (high - low);
  const auto blended = (1 - share) * slow / scaling.factor + share * slow;
  const auto between = ~(wavelengths < length / high) * ~(wavelengths > length / low);
  return torch::where(between, blended, slow);
}

}  // namespace

torch::Tensor rotary_frequencies(const LlamaShape& shape) {
  const auto D = static_cast<double>(shape.head_dim);
  const auto exponents = torch::arange(0, shape.head_dim, 2, torch::kInt64).to(torch::kFloat32) / D;
  const auto frequencies = 1.0 / torch::pow(shape.rope_theta, exponents);
  const RopeScaling& scaling = shape.rope_scaling;
  if (scaling.rope_type == "linear") return frequencies / scaling.factor;
  return scaling.rope_type == "llama3" ? scaled_as_llama3(frequencies, scaling) : frequencies;
}

RmsNormImpl::RmsNormImpl(int64_t width, double eps) : eps_(eps) {
  weight = register_parameter("weight", torch::empty({width}));
}

torch::Tensor RmsNormImpl::forward(const torch::Tensor& x) const {
  if (fused::takes(x) && fused::takes(weight)) return fused::add_rms_norm(x, {}, weights()).y;
  return at::rms_norm(wide(x), {weight.size(0)}, weight, eps_).to(x.scalar_type());
}

LlamaAttentionImpl::LlamaAttentionImpl(const LlamaShape& shape) : head_dim_(shape.head_dim) {
  const int64_t queries = shape.n_head * head_dim_;
  const int64_t keys = shape.n_kv_head * head_dim_;
  q_proj = register_module("q_proj", AdaptableLinear(shape.n_embd, queries, shape.qkv_bias));
  k_proj = register_module("k_proj", AdaptableLinear(shape.n_embd, keys, shape.qkv_bias));
  v_proj = register_module("v_proj", AdaptableLinear(shape.n_embd, keys, shape.qkv_bias));
  o_proj = register_module("o_proj", AdaptableLinear(queries, shape.n_embd, /*bias=*/false));
  if (!shape.qk_norm) return;
  q_norm = register_module("q_norm", RmsNorm(head_dim_, shape.norm_eps));
  k_norm = register_module("k_norm", RmsNorm(head_dim_, shape.norm_eps));
}

torch::Tensor LlamaAttentionImpl::forward(const torch::Tensor& input, const LlamaPass& pass,
                                          std::size_t layer) {
  const auto x_BTC = pass.enter(input);
  const int64_t B = x_BTC.size(0);
  const int64_t T = x_BTC.size(1);
  const auto heads = [&](AdaptableLinear& projection) {
    return projection(x_BTC).view({B, T, -1, head_dim_});
  };
  const auto q_BTHD = q_norm ? q_norm(heads(q_proj)) : heads(q_proj);
  const auto k_BTKD = k_norm ? k_norm(heads(k_proj)) : heads(k_proj);
  const auto v_BTKD = heads(v_proj);
  if (fused::takes(q_BTHD) && fused::takes(k_BTKD) && fused::takes(v_BTKD))
    return pass.leave(o_proj(attend_fused(q_BTHD, k_BTKD, v_BTKD, pass, layer)));
  const auto y_BHTD =
      attend(rotated(q_BTHD.transpose(1, 2), pass), rotated(k_BTKD.transpose(1, 2), pass),
             v_BTKD.transpose(1, 2), pass, layer);
  return pass.leave(o_proj(y_BHTD.transpose(1, 2).reshape({B, T, -1})));
}

torch::Tensor LlamaAttentionImpl::attend_fused(const torch::Tensor& q_BTHD,
                                               const torch::Tensor& k_BTKD,
                                               const torch::Tensor& v_BTKD, const LlamaPass& pass,
                                               std::size_t layer) const {
  const int64_t B = q_BTHD.size(0);
  const int64_t T = q_BTHD.size(1);
  const int64_t H = q_BTHD.size(2);
  const int64_t K = k_BTKD.size(2);
  const int64_t repeat = pass.cache == nullptr ? H / K : 1;  // the cache keeps each head once
  const auto heads_BTED =
      fused::rotated_heads({q_BTHD, k_BTKD, v_BTKD, pass.cos, pass.sin}, repeat);
  const bool whole_row = pass.cache == nullptr && !pass.mask.defined();
  if (whole_row && fused::takes_attention(T, head_dim_))
    return fused::causal_attention(heads_BTED.view({B, T, -1}), H, /*p=*/0.0);
  auto parts = heads_BTED.split_with_sizes({H, K * repeat, K * repeat}, 2);
  for (auto& part : parts) part = part.transpose(1, 2);
  return attend(parts[0], parts[1], parts[2], pass, layer).transpose(1, 2).reshape({B, T, -1});
}

torch::Tensor LlamaAttentionImpl::attend(const torch::Tensor& q_BHTD, torch::Tensor k_BKTD,
                                         torch::Tensor v_BKTD, const LlamaPass& pass,
                                         std::size_t layer) const {
  const int64_t T = q_BHTD.size(2);
  if (pass.cache != nullptr) {
    KeyValueCache::Layer& kept = pass.cache->layers[layer];
    k_BKTD = pass.cache->add(kept.keys_BHTD, k_BKTD);
    v_BKTD = pass.cache->add(kept.values_BHTD, v_BKTD);
    if (T == 1) return attend_to_cache(q_BHTD, k_BKTD, v_BKTD, pass.mask);
  }
  const auto k_BHTD = for_query_heads(k_BKTD, q_BHTD.size(1));
  const auto v_BHTD = for_query_heads(v_BKTD, q_BHTD.size(1));
  if (pass.mask.defined()) return attention(q_BHTD, k_BHTD, v_BHTD, pass.mask);
  return attention(q_BHTD, k_BHTD, v_BHTD, /*attn_mask=*/{},
                   /*dropout_p=*/0.0, /*is_causal=*/true);
}

LlamaMlpImpl::LlamaMlpImpl(const LlamaShape& shape) {
  const int64_t C = shape.n_embd;
  const int64_t I = shape.intermediate;
  gate_proj = register_module("gate_proj", AdaptableLinear(C, I, /*bias=*/false));
  up_proj = register_module("up_proj", AdaptableLinear(C, I, /*bias=*/false));
  down_proj = register_module("down_proj", AdaptableLinear(I, C, /*bias=*/false));
}

torch::Tensor LlamaMlpImpl::forward(const torch::Tensor& input, const LlamaPass& pass) {
  const auto x_BTC = pass.enter(input);
  const auto gate_BTI = gate_proj(x_BTC);
  const auto up_BTI = up_proj(x_BTC);
  const bool fuses = fused::takes(gate_BTI) && fused::takes(up_BTI);
  return pass.leave(
      down_proj(fuses ? fused::swiglu(gate_BTI, up_BTI) : at::silu(gate_BTI) * up_BTI));
}

LlamaBlockImpl::LlamaBlockImpl(const LlamaShape& shape) {
  input_layernorm = register_module("input_layernorm", RmsNorm(shape.n_embd, shape.norm_eps));
  self_attn = register_module("self_attn", LlamaAttention(shape));
  post_attention_layernorm =
      register_module("post_attention_layernorm", RmsNorm(shape.n_embd, shape.norm_eps));
  mlp = register_module("mlp", LlamaMlp(shape));
}

torch::Tensor LlamaBlockImpl::forward(const torch::Tensor& x_BTC, const LlamaPass& pass,
                                      std::size_t layer) {
  return with_weights(x_BTC, [&](const torch::Tensor& x) {
    if (gpu::takes_norm(x) || fused::takes_products(x)) return unadded({x}, pass, layer).sum();
    const auto attended_BTC = x + self_attn(input_layernorm(x), pass, layer);
    return attended_BTC + mlp(post_attention_layernorm(attended_BTC), pass);
  });
}

gpu::Stream LlamaBlockImpl::unadded(const gpu::Stream& stream, const LlamaPass& pass,
                                    std::size_t layer) {
  const auto add_norm = gpu::takes_norm(stream.x) ? gpu::add_norm : fused::add_rms_norm;
  const auto before = add_norm(stream.x, stream.left(), input_layernorm->weights());
  const auto attended =
      add_norm(before.sum, self_attn(before.y, pass, layer), post_attention_layernorm->weights());
  return {attended.sum, mlp(attended.y, pass)};
}

LlamaStackImpl::LlamaStackImpl(const LlamaConfig& config, int64_t vocab_size,
                               const TensorRanksPtr& ranks)
    : ranks_(ranks),
      checkpointed_(config.activation_checkpointing),
      frequencies_(rotary_frequencies(config)) {
  embed_tokens =
      register_module("embed_tokens", uninitialized_embedding(vocab_size, config.n_embd));
  layers = register_module("layers", torch::nn::ModuleList());
  for (int64_t i = 0; i < config.n_layer; ++i) layers->push_back(LlamaBlock(config));
  norm = register_module("norm", RmsNorm(config.n_embd, config.norm_eps));
}

LlamaPass LlamaStackImpl::pass_of(const torch::Tensor& idx_BT, const TokenContext& context) {
  frequencies_ = frequencies_.to(idx_BT.device());
  const auto positions = context.positions(idx_BT);
  auto angles = positions.to(torch::kFloat32).unsqueeze(-1) * frequencies_;
  if (angles.dim() == 3) angles = angles.unsqueeze(1);  // [B, 1, T, D / 2]: the same for each head
  const bool by_rows =
      context.cache == nullptr && divides_rows(ranks_, idx_BT.size(1), is_training());
  return {angles.cos(), angles.sin(), context.cache, context.mask(idx_BT), ranks_, by_rows};
}

torch::Tensor LlamaStackImpl::stage(const torch::Tensor& x_BTC, const LayerRange& range,
                                    const torch::Tensor& idx_BT, const TokenContext& context,
                                    const IndexRange& tokens) {
  const auto pass = pass_of(idx_BT, context);
  gpu::Stream stream{x_BTC};
  if (range.begin == 0) {
    stream.x = ranks_ ? pass.leave(lookup_own(idx_BT, embed_tokens->weight, tokens))
                      : embed_tokens(idx_BT);
  }
  for (int64_t i = range.begin; i < range.end; ++i)
    stream = through_block(static_cast<std::size_t>(i), stream, pass);
  if (range.end < static_cast<int64_t>(layers->size())) return stream.sum();
  return pass.enter(gpu::takes_norm(stream.x)
                        ? gpu::add_norm(stream.x, stream.left(), norm->weights()).y
                        : norm(stream.sum()));
}

void LlamaStackImpl::keep(const ModelPart& part, bool with_table) {
  layers = replace_module("layers", kept_layers(*layers, part));
  if (!part.has_first() && !with_table) {
    unregister_module("embed_tokens");
    embed_tokens = nullptr;
  }
  if (!part.has_last()) {
    unregister_module("norm");
    norm = nullptr;
  }
}

gpu::Stream LlamaStackImpl::through_block(std::size_t index, const gpu::Stream& stream,
                                          const LlamaPass& pass) {
  auto* block = layers[index]->as<LlamaBlock>();
  if (checkpointed_ && is_training() && pass.cache == nullptr)
    return {checkpoint(
        [block, pass, index](const torch::Tensor& x) { return block->forward(x, pass, index); },
        stream.sum(), block->parameters())};
  const bool takes = gpu::takes_norm(stream.x) || fused::takes_products(stream.x);
  if (takes && !block->has_hooks()) return block->unadded(stream, pass, index);
  return {block->forward(stream.sum(), pass, index)};
}

LlamaImpl::LlamaImpl(const LlamaConfig& config, int64_t vocab_size, int64_t block_size,
                     std::optional<uint64_t> seed, const TensorRanksPtr& ranks)
    : CausalModel({vocab_size, block_size, config.loss_chunk_size, config.pad_vocab_to_multiple_of,
                   ranks, llama_layout(config, vocab_size)}),
      n_layer_(config.n_layer),
      tied_(config.tie_weights) {
  model = register_module("model", LlamaStack(config, vocab_size, ranks));
  if (!tied_)
    lm_head =
        register_module("lm_head", uninitialized_linear(config.n_embd, vocab_size, /*bias=*/false));
  if (seed) LlamaImpl::draw_weights(*seed);
}

void LlamaImpl::draw_weights(uint64_t seed) {
  constexpr double kStd = 0.02;
  const double residual_std = kStd / std::sqrt(2.0 * static_cast<double>(n_layer_));
  const torch::NoGradGuard no_grad;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  draw_each([&](const std::string& name, torch::Tensor& tensor) {
    const bool residual = name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight");
    if (name.ends_with(".bias"))
      tensor.zero_();
    else if (tensor.dim() == 1)
      tensor.fill_(1.0);
    else
      tensor.normal_(0.0, residual ? residual_std : kStd, generator);
  });
}

void LlamaImpl::keep(const ModelPart& part) {
  model->keep(part, tied_ && part.has_last());
  if (tied_ || part.has_last()) return;
  unregister_module("lm_head");
  lm_head = nullptr;
}

torch::Tensor LlamaImpl::tied_table() const {
  return tied_ && model->embed_tokens ? model->embed_tokens->weight : torch::Tensor();
}

const torch::Tensor& LlamaImpl::head_weight() const {
  return lm_head ? lm_head->weight : model->embed_tokens->weight;
}

std::shared_ptr<CausalModel> make_llama(const Config& config, int64_t vocab_size,
                                        std::optional<uint64_t> seed, const TensorRanksPtr& ranks) {
  return Llama(llama_of(config), vocab_size, config.data.block_size, seed, ranks).ptr();
}

}  // namespace ddp::train
