#include "trainer/model/llama/llama_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "trainer/config/config.h"
#include "trainer/model/cost/loss_cost.h"
#include "trainer/model/cost/tensor_cost.h"
#include "trainer/model/llama/llama_types.h"
#include "trainer/model/model_division.h"
#include "trainer/model/ops/cpu/kernels.h"

namespace ddp::train {
namespace {

class LlamaLayout {
 public:
  LlamaLayout(const LlamaShape& shape, int64_t vocab_size) : shape_(shape), width_(shape.n_embd) {
    add("model.embed_tokens.weight", {vocab_size, width_}, Split::kVocabulary, vocab_size);
    for (block_ = 0; block_ < shape.n_layer; ++block_) add_block();
    block_ = WeightPlace::kAfterBlocks;
    add("model.norm.weight", {width_});
    if (!shape.tie_weights)
      add("lm_head.weight", {vocab_size, width_}, Split::kVocabulary, vocab_size);
  }

  WeightsLayout places;

 private:
  void add(std::string name, std::vector<int64_t> sizes, Split split = Split::kNone,
           int64_t units = 1) {
    places.push_back(
        {std::move(name), std::move(sizes), block_, split, /*ranges=*/1, units, share_, expert_});
  }
  void add_heads(const std::string& name, int64_t heads) {
    add(name + ".weight", {heads * shape_.head_dim, width_}, Split::kColumns, heads);
    if (shape_.qkv_bias) add(name + ".bias", {heads * shape_.head_dim}, Split::kColumns, heads);
  }
  void add_attention(const std::string& name) {
    add_heads(name + "q_proj", shape_.n_head);
    add_heads(name + "k_proj", shape_.n_kv_head);
    add_heads(name + "v_proj", shape_.n_kv_head);
    add(name + "o_proj.weight", {width_, shape_.n_head * shape_.head_dim}, Split::kRows,
        shape_.n_head);
    if (!shape_.qk_norm) return;
    add(name + "q_norm.weight", {shape_.head_dim}, Split::kInEachPart);
    add(name + "k_norm.weight", {shape_.head_dim}, Split::kInEachPart);
  }
  void add_gated(const std::string& name) {
    const FeedForwardNames& names = family_of(shape_).names;
    const int64_t inner = shape_.intermediate;
    add(name + names.gate + ".weight", {inner, width_}, Split::kColumns, inner);
    add(name + names.up + ".weight", {inner, width_}, Split::kColumns, inner);
    add(name + names.down + ".weight", {width_, inner}, Split::kRows, inner);
  }
  void add_feed_forward(const std::string& name) {
    if (shape_.n_expert == 0) return add_gated(name);
    add(name + "gate.weight", {shape_.n_expert, width_}, Split::kInEachPart);
    share_ = static_cast<double>(shape_.n_expert_per_token) / static_cast<double>(shape_.n_expert);
    for (expert_ = 0; expert_ < shape_.n_expert; ++expert_)
      add_gated(fmt::format("{}experts.{}.", name, expert_));
    expert_ = WeightPlace::kNoExpert;
    share_ = 1.0;
  }
  void add_block() {
    const std::string block = fmt::format("model.layers.{}.", block_);
    add(block + "input_layernorm.weight", {width_});
    add_attention(block + "self_attn.");
    add(block + "post_attention_layernorm.weight", {width_});
    const bool has_post_norms = family_of(shape_).has_post_norms;
    if (has_post_norms) add(block + "pre_feedforward_layernorm.weight", {width_});
    add_feed_forward(block + family_of(shape_).names.layer + ".");
    if (has_post_norms) add(block + "post_feedforward_layernorm.weight", {width_});
  }

  const LlamaShape& shape_;
  const int64_t width_;
  int64_t block_ = WeightPlace::kBeforeBlocks;
  double share_ = 1.0;
  int64_t expert_ = WeightPlace::kNoExpert;
};

/// Sizes of one micro-batch; numbers of elements as double: no overflow.
struct LlamaSizes {
  LlamaSizes(const Config& config, int64_t vocab, const ComputePlace& place)
      : shape(llama_of(config)),
        tokens(static_cast<double>(config.trainer.batch_size * config.positions())),
        row(tokens * static_cast<double>(shape.n_embd)),
        queries(tokens * static_cast<double>(shape.n_head * shape.head_dim)),
        keys(tokens * static_cast<double>(shape.n_kv_head * shape.head_dim)),
        per_token(static_cast<double>(std::max<int64_t>(1, shape.n_expert_per_token))),
        inner(per_token * tokens * static_cast<double>(shape.intermediate)),
        vocab_size(static_cast<double>(vocab)),
        compute(config.trainer.use_amp ? 2.0 : 4.0),
        fused(!place.cuda && !config.trainer.use_amp),
        keeps_normalized(!place.cuda && !fused),
        keeps_silu(!fused && (!by_gpu_kernels(config, place) || family_of(shape).is_gemma)),
        capped(shape.attn_logit_softcapping > 0),
        scores(capped ? 2 * tokens * static_cast<double>(config.positions())
               : fused && !has_window(config) &&
                       cpu::takes_attention(config.positions(), shape.head_dim)
                   ? tokens * static_cast<double>(cpu::padded(config.positions()))
                   : 0.0),
        heads(static_cast<double>(shape.n_head)),
        frozen(config.adapted()),
        by_rows(config.distributed.sequence_parallel
                    ? static_cast<double>(config.distributed.tensor)
                    : 1.0) {
    const auto shared = static_cast<double>(config.distributed.tensor);
    for (double* const part : {&queries, &keys, &inner, &heads}) *part /= shared;
    vocab_size = std::ceil(vocab_size / shared);
  }

  /// Attention is torch's then.
  static bool has_window(const Config& config) {
    const int64_t window = llama_of(config).sliding_window;
    return window > 0 && window < config.positions() && llama_of(config).full_attention_every == 0;
  }

  const LlamaConfig& shape;
  double tokens;
  double row;        ///< Elements of a hidden state.
  double queries;    ///< Elements of the rank's query heads.
  double keys;       ///< Elements of its key heads; as many of its value heads.
  double per_token;  ///< Feed-forward layers that a token goes through.
  double inner;      ///< Elements of its parts of the feed-forward layers.
  double vocab_size;
  double compute;         ///< Bytes of an element in matrix products.
  bool fused;             ///< By the kernels of a CPU.
  bool keeps_normalized;  ///< Rows before the norm's weight: a GPU's norm computes them again.
  bool keeps_silu;        ///< By torch's operations.
  bool capped;            ///< Attention is by the formula.
  double scores;  ///< Kept by the formula or the CPU's kernel for each head; 0: torch's keeps none.
  double heads;
  bool frozen;     ///< Blocks have no gradients but those of adapters.
  double by_rows;  ///< Ranks that divide the rows between shared layers.
};

constexpr double kLlamaFloat = 4.0;

/// What the backward pass of one block needs, bytes.
double llama_block_activations(const LlamaSizes& s) {
  double bytes = 2 * s.row * kLlamaFloat / s.by_rows + 2 * s.row * s.compute;  // around both norms
  if (s.keeps_normalized) bytes += 2 * s.row * kLlamaFloat / s.by_rows;
  // q; k and v, repeated for each query head; y, twice by torch's attention
  bytes += (s.scores > 0 && !s.capped ? 4 : 5) * s.queries * s.compute +
           s.scores * s.heads * kLlamaFloat;
  bytes += (s.keeps_silu ? 4 : 3) * s.inner * s.compute;  // gate, silu(gate), up, their product
  bytes += s.tokens * (2 + s.heads) * kLlamaFloat;        // statistics
  if (s.shape.n_expert > 0)  // rows sorted by expert, and their outputs; the router
    bytes += 2 * s.per_token * s.row * s.compute +
             3 * s.tokens * static_cast<double>(s.shape.n_expert) * kLlamaFloat;
  if (family_of(s.shape).has_post_norms) bytes += 2 * s.row * (kLlamaFloat + s.compute) / s.by_rows;
  if (s.shape.qk_norm) bytes += (s.fused ? 1 : 2) * (s.queries + s.keys) * kLlamaFloat;
  return bytes;
}

double llama_activation_bytes(const LlamaSizes& s, const StageLoad& load) {
  const double block = llama_block_activations(s);
  double bytes = load.kept_layers * block;
  if (s.shape.activation_checkpointing) {
    // The inputs; of one block everything, its output with the gradient, and its own gradients.
    const auto width = static_cast<double>(s.shape.n_embd);
    const double weights =
        s.frozen ? 0.0 : width * (2 * s.queries + 2 * s.keys + 3 * s.inner) / s.tokens;
    bytes =
        (load.kept_layers + 2) * s.row * kLlamaFloat / s.by_rows + block + weights * kLlamaFloat;
  }
  // Around the last norm.
  if (load.last) bytes += load.finished * (2 * s.row * kLlamaFloat / s.by_rows + s.row * s.compute);
  return bytes + (load.pipelined ? message_bytes(s.row / s.by_rows) : 0.0);
}

/// What exists besides while the last block is computed backward: gradients around SwiGLU.
double llama_block_workspace(const LlamaSizes& s) { return (4 * s.inner + 2 * s.row) * s.compute; }

}  // namespace

WeightsLayout llama_layout(const LlamaShape& shape, int64_t vocab_size) {
  return LlamaLayout(shape, vocab_size).places;
}

double llama_flops_per_token(const LlamaShape& shape, int64_t vocab_size, int64_t block_size) {
  const int64_t looked_up = shape.tie_weights ? 0 : vocab_size * shape.n_embd;
  return flops_per_token({used_by_token(llama_layout(shape, vocab_size)) - looked_up, shape.n_layer,
                          shape.n_head * shape.head_dim, block_size});
}

std::vector<MemoryItem> llama_memory_items(const Config& config, int64_t vocab_size,
                                           const ComputePlace& place) {
  const LlamaSizes sizes(config, vocab_size, place);
  const LlamaConfig& shape = sizes.shape;
  const auto layout = llama_layout(shape, vocab_size);
  return decoder_items(config, place, layout,
                       {llama_activation_bytes(sizes, stage_load(config, layout, place)),
                        llama_block_activations(sizes), llama_block_workspace(sizes),
                        shape.activation_checkpointing},
                       {tokens_of_loss(config), static_cast<double>(shape.n_embd), sizes.vocab_size,
                        sizes.compute, shape.loss_chunk_size},
                       shape.pad_vocab_to_multiple_of);
}

}  // namespace ddp::train
