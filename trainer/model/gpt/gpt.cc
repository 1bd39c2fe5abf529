#include "trainer/model/gpt/gpt.h"

#include "trainer/model/blocks/causal_attention.h"
#include "trainer/model/blocks/uninitialized_layers.h"
#include "trainer/model/gpt/gpt_architecture.h"
#include "trainer/model/ops/block_ops.h"

namespace ddp::train {
namespace {

constexpr double kNormEpsilon = 1e-5;

/// Query, key and value come from one projection.
class GptAttentionImpl : public torch::nn::Module {
 public:
  GptAttentionImpl(const GptConfig& config, const LayerOptions& layers) {
    const int64_t C = config.n_embd;
    c_attn = register_module("c_attn", ColumnLinear(C, 3 * C, /*bias=*/true, layers));
    heads = register_module(
        "heads", CausalAttention(
                     AttentionShape{config.n_head, C / config.n_head, config.attn_pdrop}, layers));
    c_proj = register_module("c_proj", RowLinear(C, C, /*bias=*/true, layers, config.resid_pdrop));
  }

  ResidualStream forward(const Normed& x, const BlockPass& pass) {
    return c_proj->add_to(x.sum, heads(c_attn, x.y, pass), pass.rows);
  }

 private:
  ColumnLinear c_attn{nullptr};
  CausalAttention heads{nullptr};
  RowLinear c_proj{nullptr};
};
TORCH_MODULE(GptAttention);

class GptMlpImpl : public torch::nn::Module {
 public:
  GptMlpImpl(const GptConfig& config, const LayerOptions& layers)
      : tanh_(config.activation == Activation::kGeluTanh) {
    const int64_t C = config.n_embd;
    c_fc = register_module("c_fc", ColumnLinear(C, 4 * C, /*bias=*/true, layers));
    c_proj =
        register_module("c_proj", RowLinear(4 * C, C, /*bias=*/true, layers, config.resid_pdrop));
  }

  ResidualStream forward(const Normed& x, const BlockPass& pass) {
    return c_proj->add_to(x.sum, c_fc->gelu(x.y, pass.rows, tanh_), pass.rows);
  }

 private:
  ColumnLinear c_fc{nullptr};
  RowLinear c_proj{nullptr};
  bool tanh_;
};
TORCH_MODULE(GptMlp);

class GptBlock : public DecoderBlock {
 public:
  GptBlock(const GptConfig& config, const LayerOptions& layers) {
    ln_1 = register_module("ln_1", Norm(config.n_embd, kNormEpsilon, NormKind::kLayer));
    attn = register_module("attn", GptAttention(config, layers));
    ln_2 = register_module("ln_2", Norm(config.n_embd, kNormEpsilon, NormKind::kLayer));
    mlp = register_module("mlp", GptMlp(config, layers));
  }

  ResidualStream through(const ResidualStream& stream, const BlockPass& pass) override {
    const auto attended = ln_2(attn(ln_1(stream), pass));
    return mlp(attended, pass);
  }

 private:
  Norm ln_1{nullptr}, ln_2{nullptr};
  GptAttention attn{nullptr};
  GptMlp mlp{nullptr};
};

}  // namespace

GPTImpl::GPTImpl(const GptConfig& config, int64_t vocab_size, int64_t block_size,
                 std::optional<uint64_t> seed, const TensorRanksPtr& ranks)
    : DecoderModel(
          {vocab_size, block_size, config.loss_chunk_size, config.pad_vocab_to_multiple_of, ranks,
           gpt_layout(config, vocab_size, block_size)},
          {.n_layer = config.n_layer,
           .n_embd = config.n_embd,
           .tied = config.tie_weights,
           .checkpointed = config.activation_checkpointing,
           .drops = config.embd_pdrop > 0 || config.resid_pdrop > 0 || config.attn_pdrop > 0,
           .layers = {ranks, config.fused_cpu_kernels},
           .stack = "transformer",
           .table = "wte",
           .blocks = "h",
           .norm = "ln_f"}),
      embd_pdrop_(config.embd_pdrop) {
  wpe = stack().register_module("wpe", uninitialized_embedding(block_size, config.n_embd));
  complete([&] { return std::make_shared<GptBlock>(config, layer_options()); },
           Norm(config.n_embd, kNormEpsilon, NormKind::kLayer), seed);
}

torch::Tensor GPTImpl::embed(const torch::Tensor& idx_BT, const TokenContext& context,
                             const BlockPass& pass) {
  const auto positions = own_rows(context.positions(idx_BT), pass.rows);
  // A statement of its own: the order of lookups is that in which gradients come, by which the
  // Reducer orders its buckets.
  const auto tokens_BSC = DecoderModel::embed(idx_BT, context, pass);
  return ops::dropout(tokens_BSC + wpe(positions), is_training() ? embd_pdrop_ : 0.0, pass.rows,
                      layer_options().fused_cpu);
}

void GPTImpl::keep(const ModelPart& part) {
  DecoderModel::keep(part);
  if (part.has_first()) return;
  stack().unregister_module("wpe");
  wpe = nullptr;
}

std::shared_ptr<CausalModel> make_gpt(const Config& config, int64_t vocab_size,
                                      std::optional<uint64_t> seed, const TensorRanksPtr& ranks) {
  return GPT(config.gpt, vocab_size, config.positions(), seed, ranks).ptr();
}

}  // namespace ddp::train
