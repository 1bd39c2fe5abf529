#include "trainer/model/gpt/gpt_cost.h"

#include <algorithm>
#include <cmath>

#include "trainer/model/cpu/kernels.h"

namespace ddp::train {
namespace {

constexpr double kFloatSize = 4.0;
constexpr double kMask = 1.0;

/// GptSizes of one micro-batch; numbers of elements as double: no overflow.
struct GptSizes {
  GptSizes(const Config& config, int64_t vocab, const ComputePlace& place)
      : tokens(static_cast<double>(config.trainer.batch_size * config.data.block_size)),
        width(static_cast<double>(config.gpt.n_embd)),
        heads(static_cast<double>(config.gpt.n_head)),
        length(static_cast<double>(config.data.block_size)),
        layers(static_cast<double>(config.gpt.n_layer)),
        vocab_size(static_cast<double>(vocab)),
        compute(config.trainer.use_amp ? 2.0 : kFloatSize),
        fused(config.gpt.fused_cpu_kernels && !place.cuda),
        fused_attention(fused && cpu::takes_attention(
                                     config.data.block_size,
                                     config.gpt.n_embd / std::max<int64_t>(1, config.gpt.n_head))),
        noise(fused ? 0.0 : (place.cuda ? kMask : kFloatSize)) {}

  /// Attention scores of a block: [B, H, T, T].
  double scores() const { return tokens * heads * length; }

  double tokens;
  double width;
  double heads;
  double length;
  double layers;
  double vocab_size;
  double compute;  ///< Bytes of an element in matrix products.
  bool fused;      ///< gpt_config.fused_cpu_kernels is at work: masks are made again.
  bool fused_attention;
  double noise;  ///< Bytes of an element of a dropout mask: a product with floats on the CPU.
};

/// What the backward pass of one block needs, bytes.
double block_activations(const GptSizes& s, const GptConfig& gpt, bool cuda) {
  const double row = s.tokens * s.width;
  double bytes = 2 * row * kFloatSize;             // the inputs of both norms
  bytes += (2 + 3 + 1 + 4 + 4) * row * s.compute;  // norms' outputs, q k v, y, around the GELU
  bytes += s.tokens * (4 + s.heads) * kFloatSize;  // statistics of norms and of the softmax
  if (gpt.resid_pdrop > 0) bytes += 2 * row * s.noise;
  if (s.fused_attention) {  // probabilities; q, k and v in float32
    return bytes + s.scores() * kFloatSize + (s.compute < kFloatSize ? 3 * row * kFloatSize : 0.0);
  }
  // No fused attention with dropout there: q, k and v once more, then softmax, noise and product.
  if (gpt.attn_pdrop > 0 && !cuda) bytes += 3 * row * s.compute + 3 * s.scores() * kFloatSize;
  return bytes;
}

/// What exists besides while the last block is computed backward: around the GELU first; then, when
/// the MLP's part is gone, the gradients of the attention scores.
double block_workspace(const GptSizes& s, const GptConfig& gpt, bool cuda) {
  const double row = s.tokens * s.width * s.compute;
  const double scores =
      gpt.attn_pdrop > 0 && !cuda && !s.fused_attention ? 2 * s.scores() * kFloatSize : 0.0;
  constexpr double kRows = 14;  // measured on CPUs; 9 of them are the gradients around the GELU
  return std::max(kRows * row, scores - 6 * row);
}

double activation_bytes(const GptSizes& s, const GptConfig& gpt, bool cuda) {
  const double row = s.tokens * s.width;
  const double block = block_activations(s, gpt, cuda);
  double bytes = s.layers * block;
  if (gpt.activation_checkpointing) {
    // The inputs; of one block everything, its output with the gradient, and its own gradients.
    bytes = (s.layers + 2) * row * kFloatSize + block + 12 * s.width * s.width * kFloatSize;
  }
  bytes += row * kFloatSize + row * s.compute;  // around the last norm
  if (gpt.embd_pdrop > 0) bytes += row * s.noise;
  return bytes;
}

int64_t whole_bytes(double bytes) { return static_cast<int64_t>(std::llround(bytes)); }

}  // namespace

ParameterCounts parameter_counts(const GptConfig& gpt, int64_t vocab_size, int64_t block_size) {
  const int64_t width = gpt.n_embd;
  ParameterCounts counts;
  counts.token_embedding = vocab_size * width;
  counts.position_embedding = block_size * width;
  counts.blocks = gpt.n_layer * (12 * width * width + 13 * width);
  counts.final_norm = 2 * width;
  counts.head = gpt.tie_weights ? 0 : vocab_size * width;
  return counts;
}

std::vector<ParameterPart> ParameterCounts::parts() const {
  return {{"token_embedding", token_embedding},
          {"position_embedding", position_embedding},
          {"blocks", blocks},
          {"final_norm", final_norm},
          {"head", head}};
}

std::vector<MemoryItem> memory_items(const Config& config, int64_t vocab_size,
                                     const ComputePlace& place) {
  const GptConfig& gpt = config.gpt;
  const GptSizes sizes(config, vocab_size, place);
  const auto parameters =
      static_cast<double>(parameter_counts(gpt, vocab_size, config.data.block_size).total());
  const double hidden = 12.0 * sizes.layers * sizes.width * sizes.width;
  // The logits are gone when the blocks are computed backward.
  const double logits = logit_bytes(
      {sizes.tokens, sizes.width, sizes.vocab_size, sizes.compute, gpt.loss_chunk_size});
  const double workspace = std::max(0.0, block_workspace(sizes, gpt, place.cuda) - logits);
  return with_items(
      state_items(config, parameters, hidden, place),
      {{"activations", whole_bytes(activation_bytes(sizes, gpt, place.cuda) + workspace)},
       {"logits", whole_bytes(logits)}});
}

}  // namespace ddp::train
