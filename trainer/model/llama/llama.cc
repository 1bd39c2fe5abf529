#include "trainer/model/llama/llama.h"

#include <numbers>

#include "trainer/model/blocks/causal_attention.h"
#include "trainer/model/llama/llama_cost.h"
#include "trainer/model/ops/block_ops.h"

namespace ddp::train {
namespace {

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
    heads =
        register_module("heads", CausalAttention(AttentionShape{shape.n_head, head_dim_}, layers));
    o_proj =
        register_module("o_proj", RowLinear(shape.n_head * head_dim_, C, /*bias=*/false, layers));
    if (!shape.qk_norm) return;
    q_norm = register_module("q_norm", Norm(head_dim_, shape.norm_eps, /*bias=*/false));
    k_norm = register_module("k_norm", Norm(head_dim_, shape.norm_eps, /*bias=*/false));
  }

  ResidualStream forward(const Normed& x, const BlockPass& pass) {
    auto [q, k, v] = side_by_side(x.y, pass.rows, q_proj, k_proj, v_proj);
    for (auto* const each : {&q, &k, &v})
      *each = each->view({each->size(0), each->size(1), -1, head_dim_});
    if (q_norm) q = q_norm->of_heads(q);
    if (k_norm) k = k_norm->of_heads(k);
    return o_proj->add_to(x.sum, heads->rotary(q, k, v, pass), pass.rows);
  }

 private:
  ColumnLinear q_proj{nullptr}, k_proj{nullptr}, v_proj{nullptr};
  CausalAttention heads{nullptr};
  RowLinear o_proj{nullptr};
  Norm q_norm{nullptr}, k_norm{nullptr};  // empty without qk_norm
  int64_t head_dim_;
};
TORCH_MODULE(LlamaAttention);

class LlamaMlpImpl : public torch::nn::Module {
 public:
  LlamaMlpImpl(const LlamaShape& shape, const LayerOptions& layers) {
    const int64_t C = shape.n_embd;
    const int64_t I = shape.intermediate;
    gate_proj = register_module("gate_proj", ColumnLinear(C, I, /*bias=*/false, layers));
    up_proj = register_module("up_proj", ColumnLinear(C, I, /*bias=*/false, layers));
    down_proj = register_module("down_proj", RowLinear(I, C, /*bias=*/false, layers));
  }

  ResidualStream forward(const Normed& x, const BlockPass& pass) {
    const auto [gate, up] = side_by_side(x.y, pass.rows, gate_proj, up_proj);
    return down_proj->add_to(x.sum, ops::swiglu(gate, up), pass.rows);
  }

 private:
  ColumnLinear gate_proj{nullptr}, up_proj{nullptr};
  RowLinear down_proj{nullptr};
};
TORCH_MODULE(LlamaMlp);

class LlamaBlock : public DecoderBlock {
 public:
  LlamaBlock(const LlamaShape& shape, const LayerOptions& layers) {
    const auto norm = [&] { return Norm(shape.n_embd, shape.norm_eps, /*bias=*/false); };
    input_layernorm = register_module("input_layernorm", norm());
    self_attn = register_module("self_attn", LlamaAttention(shape, layers));
    post_attention_layernorm = register_module("post_attention_layernorm", norm());
    mlp = register_module("mlp", LlamaMlp(shape, layers));
  }

  ResidualStream through(const ResidualStream& stream, const BlockPass& pass) override {
    const auto attended = post_attention_layernorm(self_attn(input_layernorm(stream), pass));
    return mlp(attended, pass);
  }

 private:
  Norm input_layernorm{nullptr}, post_attention_layernorm{nullptr};
  LlamaAttention self_attn{nullptr};
  LlamaMlp mlp{nullptr};
};

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

LlamaImpl::LlamaImpl(const LlamaConfig& config, int64_t vocab_size, int64_t block_size,
                     std::optional<uint64_t> seed, const TensorRanksPtr& ranks)
    : DecoderModel({vocab_size, block_size, config.loss_chunk_size, config.pad_vocab_to_multiple_of,
                    ranks, llama_layout(config, vocab_size)},
                   {.n_layer = config.n_layer,
                    .n_embd = config.n_embd,
                    .tied = config.tie_weights,
                    .checkpointed = config.activation_checkpointing,
                    .layers = {ranks},
                    .stack = "model",
                    .table = "embed_tokens",
                    .blocks = "layers",
                    .norm = "norm"}),
      frequencies_(rotary_frequencies(config)) {
  complete([&] { return std::make_shared<LlamaBlock>(config, layer_options()); },
           Norm(config.n_embd, config.norm_eps, /*bias=*/false), seed);
}

void LlamaImpl::set_positions(BlockPass& pass, const torch::Tensor& idx_BT,
                              const TokenContext& context) {
  frequencies_ = frequencies_.to(idx_BT.device());
  auto angles = context.positions(idx_BT).to(torch::kFloat32).unsqueeze(-1) * frequencies_;
  if (angles.dim() == 3) angles = angles.unsqueeze(1);  // [B, 1, T, D / 2]: the same for each head
  pass.cos = angles.cos();
  pass.sin = angles.sin();
}

std::shared_ptr<CausalModel> make_llama(const Config& config, int64_t vocab_size,
                                        std::optional<uint64_t> seed, const TensorRanksPtr& ranks) {
  return Llama(llama_of(config), vocab_size, config.positions(), seed, ranks).ptr();
}

}  // namespace ddp::train
