// The memory that training a GPT takes, estimated arithmetically.
#include <algorithm>
#include <cmath>

#include "trainer/config/config.h"
#include "trainer/model/cost/loss_cost.h"
#include "trainer/model/cost/tensor_cost.h"
#include "trainer/model/gpt/gpt_architecture.h"
#include "trainer/model/model_division.h"
#include "trainer/model/ops/cpu/kernels.h"

namespace ddp::train {
namespace {

constexpr double kFloatSize = 4.0;
constexpr double kMask = 1.0;

/// GptSizes of one micro-batch; numbers of elements as double: no overflow.
struct GptSizes {
  GptSizes(const Config& config, int64_t vocab, const ComputePlace& place)
      : tokens(static_cast<double>(config.trainer.batch_size * config.positions())),
        width(static_cast<double>(config.gpt.n_embd)),
        heads(static_cast<double>(config.gpt.n_head)),
        length(static_cast<double>(config.positions())),
        vocab_size(static_cast<double>(vocab)),
        compute(config.trainer.use_amp ? 2.0 : kFloatSize),
        fused(config.gpt.fused_cpu_kernels && !place.cuda),
        fused_attention(fused && cpu::takes_attention(
                                     config.positions(),
                                     config.gpt.n_embd / std::max<int64_t>(1, config.gpt.n_head))),
        frozen(config.adapted()),
        noise(fused ? 0.0 : (place.cuda ? kMask : kFloatSize)),
        shared(static_cast<double>(config.distributed.tensor)),
        by_rows(config.distributed.sequence_parallel ? shared : 1.0) {
    heads /= shared;
    vocab_size = std::ceil(vocab_size / shared);
  }

  /// Attention scores of a block: [B, H, T, T].
  double scores() const { return tokens * heads * length; }

  double tokens;
  double width;
  double heads;
  double length;
  double vocab_size;
  double compute;  ///< Bytes of an element in matrix products.
  bool fused;      ///< gpt_config.fused_cpu_kernels is at work: masks are made again.
  bool fused_attention;
  bool frozen;     ///< Blocks have no gradients but those of adapters.
  double noise;    ///< Bytes of an element of a dropout mask: a product with floats on the CPU.
  double shared;   ///< Ranks that share each layer; heads and vocab_size are those of one.
  double by_rows;  ///< Ranks that divide the rows between shared layers.
};

/// Whether attention is computed step by step: with dropout on the CPU, and where ranks share heads
/// on a GPU, too, as each has to draw the mask of all.
bool keeps_scores(const GptSizes& s, const GptConfig& gpt, bool cuda) {
  return gpt.attn_pdrop > 0 && !s.fused_attention && (!cuda || s.shared > 1);
}

/// What the backward pass of one block needs, bytes.
double block_activations(const GptSizes& s, const GptConfig& gpt, bool cuda) {
  const double row = s.tokens * s.width;
  double bytes = 2 * row * kFloatSize / s.by_rows;        // the inputs of both norms
  bytes += 2 * row * s.compute;                           // their outputs, as layers get them
  bytes += (3 + 1 + 4 + 4) * row / s.shared * s.compute;  // q k v, y, around the GELU
  bytes += s.tokens * (4 + s.heads) * kFloatSize;         // statistics of norms and of the softmax
  if (gpt.resid_pdrop > 0) bytes += 2 * row * s.noise / s.by_rows;
  if (s.fused_attention) {  // probabilities; q, k and v in float32
    return bytes + s.scores() * kFloatSize +
           (s.compute < kFloatSize ? 3 * row / s.shared * kFloatSize : 0.0);
  }
  // No fused attention with dropout there: q, k and v once more, then softmax, noise and product.
  if (keeps_scores(s, gpt, cuda)) {
    const double product = cuda ? s.compute : kFloatSize;
    bytes += 3 * row / s.shared * s.compute + s.scores() * (2 * kFloatSize + product);
  }
  return bytes;
}

/// What exists besides while the last block is computed backward: around the GELU first; then, when
/// the MLP's part is freed, the gradients of the attention scores.
double block_workspace(const GptSizes& s, const GptConfig& gpt, bool cuda) {
  const double row = s.tokens * s.width * s.compute / s.shared;
  const double masks = s.shared > 1 ? s.shared : 1.0;  // of all heads
  const double scores = keeps_scores(s, gpt, cuda) ? (1.0 + masks) * s.scores() * kFloatSize : 0.0;
  // Measured. On CPUs 9 are the gradients around the GELU.
  const double rows = cuda ? 5 : 14;
  return std::max(rows * row, scores - 6 * row);
}

double activation_bytes(const GptSizes& s, const GptConfig& gpt, bool cuda, const StageLoad& load) {
  const double row = s.tokens * s.width;
  const double block = block_activations(s, gpt, cuda);
  double bytes = load.kept_layers * block;
  if (gpt.activation_checkpointing) {
    // The inputs; of one block everything, its output with the gradient, and its own gradients.
    bytes = (load.kept_layers + 2) * row * kFloatSize / s.by_rows + block +
            (s.frozen ? 0.0 : 12 * s.width * s.width / s.shared * kFloatSize);
  }
  if (load.last) {  // around the last norm
    bytes += load.finished * (row * kFloatSize / s.by_rows + row * s.compute);
  }
  if (gpt.embd_pdrop > 0 && load.first) bytes += load.in_flight * row * s.noise / s.by_rows;
  if (!load.pipelined) return bytes;
  constexpr double kMoreOnGpus = 9;  // rows, measured
  return bytes + message_bytes(row / s.by_rows) +
         (cuda ? kMoreOnGpus * row / s.by_rows * kFloatSize : 0.0);
}

}  // namespace

std::vector<MemoryItem> memory_items(const Config& config, int64_t vocab_size,
                                     const ComputePlace& place) {
  const GptConfig& gpt = config.gpt;
  const GptSizes sizes(config, vocab_size, place);
  const auto layout = gpt_layout(gpt, vocab_size, config.positions());
  const StageLoad load = stage_load(config, layout, place);
  return decoder_items(
      config, place, layout,
      {activation_bytes(sizes, gpt, place.cuda, load), block_activations(sizes, gpt, place.cuda),
       block_workspace(sizes, gpt, place.cuda), gpt.activation_checkpointing},
      {tokens_of_loss(config), sizes.width, sizes.vocab_size, sizes.compute, gpt.loss_chunk_size},
      gpt.pad_vocab_to_multiple_of);
}

}  // namespace ddp::train
