#include "trainer/model/llama/llama.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trainer/model/blocks/causal_attention.h"
#include "trainer/model/blocks/experts.h"
#include "trainer/model/blocks/fused_adapter.h"
#include "trainer/model/llama/llama_cost.h"
#include "trainer/model/llama/llama_pretrained.h"
#include "trainer/model/llama/llama_types.h"
#include "trainer/model/ops/block_ops.h"

namespace ddp::train {
namespace {

Norm norm_of(const LlamaShape& shape, int64_t width) {
  return Norm(width, shape.norm_eps,
              family_of(shape).is_gemma ? NormKind::kOffsetRms : NormKind::kRms);
}

// Rounded to float32, the type of the weights, as in transformers.
float scale_of_embeddings(const LlamaShape& shape) {
  return family_of(shape).is_gemma ? std::sqrt(static_cast<float>(shape.n_embd)) : 1.0F;
}

AttentionShape attention_of(const LlamaShape& shape) {
  AttentionShape result{
      .heads = shape.n_head, .head_dim = shape.head_dim, .softcap = shape.attn_logit_softcapping};
  const double scalar = shape.query_pre_attn_scalar;
  if (scalar != 0.0 && scalar != static_cast<double>(shape.head_dim))
    result.scale = 1.0 / std::sqrt(scalar);
  return result;
}

/// Whether transformers' files have layers that are one, kLlamaLayout.fused.
bool has_fused_layers(const LlamaShape& shape) {
  return family_of(shape).model_type == kLlamaLayout.fused.front().model_type;
}

class LlamaAttentionImpl : public torch::nn::Module {
 public:
  LlamaAttentionImpl(const LlamaShape& shape, const LayerOptions& layers)
      : head_dim_(shape.head_dim) {
    const int64_t C = shape.n_embd;
    const auto heads_of = [&](const char* name, int64_t count) {
      return register_module(name, ColumnLinear(C, count * head_dim_, shape.qkv_bias, layers));
    };
    q_proj = heads_of("q_proj", shape.n_head);
    k_proj = heads_of("k_proj", shape.n_kv_head);
    v_proj = heads_of("v_proj", shape.n_kv_head);
    if (has_fused_layers(shape)) {
      const int64_t queries = shape.n_head * head_dim_, keys = shape.n_kv_head * head_dim_;
      qkv_proj = register_module(
          "qkv_proj",
          FusedAdapter(C, std::vector<FusedAdapterImpl::Layer>{
                              {"q_proj", queries}, {"k_proj", keys}, {"v_proj", keys}}));
    }
    heads = register_module("heads", CausalAttention(attention_of(shape), layers));
    o_proj =
        register_module("o_proj", RowLinear(shape.n_head * head_dim_, C, /*bias=*/false, layers));
    if (!shape.qk_norm) return;
    q_norm = register_module("q_norm", norm_of(shape, head_dim_));
    k_norm = register_module("k_norm", norm_of(shape, head_dim_));
  }

  ResidualStream forward(const Normed& x, const BlockPass& pass) {
    auto [q, k, v] = side_by_side(x.y, pass.rows, q_proj, k_proj, v_proj);
    if (qkv_proj) qkv_proj->add_to(x.y, {&q, &k, &v});
    for (auto* const each : {&q, &k, &v})
      *each = each->view({each->size(0), each->size(1), -1, head_dim_});
    if (q_norm) q = q_norm->of(q);
    if (k_norm) k = k_norm->of(k);
    return o_proj->add_to(x.sum, heads->rotary(q, k, v, pass), pass.rows);
  }

 private:
  ColumnLinear q_proj{nullptr}, k_proj{nullptr}, v_proj{nullptr};
  FusedAdapter qkv_proj{nullptr};  // empty but in a Phi-3
  CausalAttention heads{nullptr};
  RowLinear o_proj{nullptr};
  Norm q_norm{nullptr}, k_norm{nullptr};  // empty without qk_norm
  int64_t head_dim_;
};
TORCH_MODULE(LlamaAttention);

class LlamaMlpImpl : public torch::nn::Module {
 public:
  LlamaMlpImpl(const LlamaShape& shape, const LayerOptions& layers)
      : has_gelu_(family_of(shape).is_gemma) {
    const int64_t C = shape.n_embd;
    const int64_t I = shape.intermediate;
    gate_proj = register_module("gate_proj", ColumnLinear(C, I, /*bias=*/false, layers));
    up_proj = register_module("up_proj", ColumnLinear(C, I, /*bias=*/false, layers));
    if (has_fused_layers(shape))
      gate_up_proj = register_module(
          "gate_up_proj",
          FusedAdapter(C, std::vector<FusedAdapterImpl::Layer>{{"gate_proj", I}, {"up_proj", I}}));
    down_proj = register_module("down_proj", RowLinear(I, C, /*bias=*/false, layers));
  }

  ResidualStream forward(const Normed& x, const BlockPass& pass) {
    auto [gate, up] = side_by_side(x.y, pass.rows, gate_proj, up_proj);
    if (gate_up_proj) gate_up_proj->add_to(x.y, {&gate, &up});
    const auto inner = has_gelu_ ? at::gelu(gate, "tanh") * up : ops::swiglu(gate, up);
    return down_proj->add_to(x.sum, inner, pass.rows);
  }

 private:
  ColumnLinear gate_proj{nullptr}, up_proj{nullptr};
  FusedAdapter gate_up_proj{nullptr};  // empty but in a Phi-3
  RowLinear down_proj{nullptr};
  bool has_gelu_;
};
TORCH_MODULE(LlamaMlp);

ExpertsShape experts_of(const LlamaShape& shape) {
  const LlamaType& family = family_of(shape);
  return {.width = shape.n_embd,
          .inner = shape.intermediate,
          .experts = shape.n_expert,
          .per_token = shape.n_expert_per_token,
          .normalized = shape.norm_topk_prob,
          .rounds_weights = family.rounds_router_weights,
          .gate = family.names.gate,
          .up = family.names.up,
          .down = family.names.down};
}

/// `ranks`, if it is experts that they share, or if it is not.
TensorRanksPtr ranks_of(const TensorRanksPtr& ranks, bool experts) {
  return ranks && ranks->divides_experts() == experts ? ranks : TensorRanksPtr();
}

class LlamaBlock : public DecoderBlock {
 public:
  LlamaBlock(const LlamaShape& shape, const LayerOptions& layers) {
    const auto norm = [&](const char* name) {
      return register_module(name, norm_of(shape, shape.n_embd));
    };
    const bool both = family_of(shape).has_post_norms;
    before_attention = norm("input_layernorm");
    self_attn = register_module("self_attn", LlamaAttention(shape, layers));
    if (both) after_attention = norm("post_attention_layernorm");
    before_mlp = norm(both ? "pre_feedforward_layernorm" : "post_attention_layernorm");
    const char* const feed_forward = family_of(shape).names.layer;
    if (shape.n_expert > 0)
      experts = register_module(feed_forward, Experts(experts_of(shape), layers));
    else
      mlp = register_module(feed_forward, LlamaMlp(shape, layers));
    if (both) after_mlp = norm("post_feedforward_layernorm");
  }

  ResidualStream through(const ResidualStream& stream, const BlockPass& pass) override {
    const auto attended = normed(self_attn(before_attention(stream), pass), after_attention);
    const auto inner = before_mlp(attended);
    return normed(experts ? experts(inner, pass) : mlp(inner, pass), after_mlp);
  }

 private:
  static ResidualStream normed(const ResidualStream& stream, const Norm& norm) {
    return norm ? ResidualStream{stream.x, norm->of(stream.branch)} : stream;
  }

  Norm before_attention{nullptr}, before_mlp{nullptr};
  Norm after_attention{nullptr}, after_mlp{nullptr};  // empty without post-norms
  LlamaAttention self_attn{nullptr};
  LlamaMlp mlp{nullptr};     // either this
  Experts experts{nullptr};  // or these
};

torch::Tensor rotary_exponents(const LlamaShape& shape, torch::Device device) {
  const int64_t R = rotary_width(shape);
  const auto options = torch::TensorOptions(torch::kInt64).device(device);
  return torch::arange(0, R, 2, options).to(torch::kFloat32) / static_cast<double>(R);
}

/// Frequencies for a text of as many tokens as the pass has positions, by a larger base beyond the
/// original context (bloc97, "NTK-aware scaled RoPE", 2023). On the device alone.
torch::Tensor scaled_by_length(const LlamaShape& shape, const torch::Tensor& positions) {
  const auto R = static_cast<double>(rotary_width(shape));
  const double factor = shape.rope_scaling.factor;
  const int64_t original = shape.rope_scaling.original_max_position_embeddings;
  const auto length = (positions.max() + 1).clamp_min(original).to(torch::kFloat32);
  const auto base =
      shape.rope_theta *
      (factor * length / static_cast<double>(original) - (factor - 1)).pow(R / (R - 2));
  return 1.0 / torch::pow(base, rotary_exponents(shape, positions.device()));
}

/// Peng et al., "YaRN: efficient context window extension of large language models" (2023):
/// frequencies of many turns within the original context are kept, of few divided by the factor,
/// between them blended.
torch::Tensor scaled_by_yarn(const torch::Tensor& frequencies, const LlamaShape& shape) {
  const RopeScaling& scaling = shape.rope_scaling;
  const auto R = static_cast<double>(rotary_width(shape));
  const auto pair_of = [&](double turns) {
    const auto length = static_cast<double>(scaling.original_max_position_embeddings);
    return R * std::log(length / (turns * 2 * std::numbers::pi)) / (2 * std::log(shape.rope_theta));
  };
  const double low = std::max(std::floor(pair_of(scaling.beta_fast)), 0.0);
  double high = std::min(std::ceil(pair_of(scaling.beta_slow)), R - 1);
  if (low == high) high += 0.001;
  const auto pairs = torch::arange(frequencies.size(0), torch::kFloat32);
  const auto kept = 1 - ((pairs - low) / (high - low)).clamp(0, 1);
  return frequencies / scaling.factor * (1 - kept) + frequencies * kept;
}

/// Factor of cosines and sines.
double attention_factor(const RopeScaling& scaling) {
  if (scaling.rope_type != "yarn") return 1.0;
  if (scaling.attention_factor > 0) return scaling.attention_factor;
  return 0.1 * std::log(std::max(1.0, scaling.factor)) + 1.0;
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

torch::Tensor rotary_frequencies(const LlamaShape& shape, bool is_local) {
  const auto exponents = rotary_exponents(shape, torch::kCPU);
  if (is_local) return 1.0 / torch::pow(shape.rope_local_base_freq, exponents);
  const auto frequencies = 1.0 / torch::pow(shape.rope_theta, exponents);
  const RopeScaling& scaling = shape.rope_scaling;
  if (scaling.rope_type == "yarn") return scaled_by_yarn(frequencies, shape);
  if (scaling.rope_type == "linear") return frequencies / scaling.factor;
  return scaling.rope_type == "llama3" ? scaled_as_llama3(frequencies, scaling) : frequencies;
}

LlamaImpl::LlamaImpl(const LlamaConfig& config, int64_t vocab_size, int64_t block_size,
                     std::optional<uint64_t> seed, const TensorRanksPtr& ranks)
    : DecoderModel({vocab_size, block_size, config.loss_chunk_size, config.pad_vocab_to_multiple_of,
                    ranks_of(ranks, /*experts=*/false), llama_layout(config, vocab_size),
                    config.final_logit_softcapping, config.router_aux_loss_coef,
                    ranks_of(ranks, /*experts=*/true)},
                   {.n_layer = config.n_layer,
                    .n_embd = config.n_embd,
                    .n_expert = config.n_expert,
                    .tied = config.tie_weights,
                    .checkpointed = config.activation_checkpointing,
                    .norm_start = family_of(config).is_gemma ? 0.0 : 1.0,
                    .embedding_scale = scale_of_embeddings(config),
                    .layers = {.ranks = ranks_of(ranks, /*experts=*/false),
                               .experts = ranks_of(ranks, /*experts=*/true)},
                    .stack = "model",
                    .table = "embed_tokens",
                    .blocks = "layers",
                    .norm = "norm"}),
      shape_(config),
      frequencies_(rotary_frequencies(config)),
      local_frequencies_(config.rope_local_base_freq > 0 ? rotary_frequencies(config, true)
                                                         : torch::Tensor()) {
  complete([&] { return std::make_shared<LlamaBlock>(config, layer_options()); },
           norm_of(config, config.n_embd), seed);
}

void LlamaImpl::set_positions(BlockPass& pass, const torch::Tensor& idx_BT,
                              const TokenContext& context) {
  const auto positions = context.positions(idx_BT);
  const bool is_local = pass.window > 0 && shape_.rope_local_base_freq > 0;
  torch::Tensor& fixed = is_local ? local_frequencies_ : frequencies_;
  fixed = fixed.to(idx_BT.device());
  const bool by_length = !is_local && shape_.rope_scaling.rope_type == "dynamic";
  const auto frequencies = by_length ? scaled_by_length(shape_, positions) : fixed;
  auto angles = positions.to(torch::kFloat32).unsqueeze(-1) * frequencies;
  if (angles.dim() == 3) angles = angles.unsqueeze(1);  // [B, 1, T, D / 2]: the same for each head
  const double factor = is_local ? 1.0 : attention_factor(shape_.rope_scaling);
  pass.cos = factor == 1.0 ? angles.cos() : angles.cos() * factor;
  pass.sin = factor == 1.0 ? angles.sin() : angles.sin() * factor;
}

std::shared_ptr<CausalModel> make_llama(const Config& config, int64_t vocab_size,
                                        std::optional<uint64_t> seed, const TensorRanksPtr& ranks) {
  return Llama(llama_of(config), vocab_size, config.positions(), seed, ranks).ptr();
}

}  // namespace ddp::train
