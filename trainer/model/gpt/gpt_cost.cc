#include "trainer/model/gpt/gpt_cost.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "trainer/model/cost/loss_cost.h"
#include "trainer/model/cost/tensor_cost.h"
#include "trainer/model/gpt/gpt_architecture.h"
#include "trainer/model/lora.h"
#include "trainer/model/model_division.h"
#include "trainer/model/ops/cpu/kernels.h"

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
  double layers;
  double vocab_size;
  double compute;  ///< Bytes of an element in matrix products.
  bool fused;      ///< gpt_config.fused_cpu_kernels is at work: masks are made again.
  bool fused_attention;
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
            12 * s.width * s.width / s.shared * kFloatSize;
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

ParameterRole role_of(std::string_view name, int64_t dimensions) {
  if (name.ends_with("wte.weight") || name.ends_with("wpe.weight"))
    return ParameterRole::kEmbedding;
  if (dimensions < 2) return ParameterRole::kOther;
  return name.starts_with("transformer.h.") ? ParameterRole::kHidden : ParameterRole::kLinear;
}

int64_t whole_bytes(double bytes) { return static_cast<int64_t>(std::llround(bytes)); }

}  // namespace

std::vector<ParameterShape> gpt_parameter_shapes(const GptConfig& gpt, int64_t vocab_size,
                                                 int64_t block_size) {
  const int64_t width = gpt.n_embd;
  std::vector<ParameterShape> shapes;
  const auto add_table = [&](const char* name, int64_t rows) {
    shapes.push_back({name, {rows, width}, role_of(name, 2)});
  };
  const auto add_norm = [&](const std::string& name) {
    add_layer(shapes, name, {width}, ParameterRole::kOther);
  };
  const auto add_linear = [&](const std::string& name, int64_t outputs, int64_t inputs) {
    add_layer(shapes, name, {outputs, inputs}, ParameterRole::kHidden);
  };
  add_table("transformer.wte.weight", vocab_size);
  add_table("transformer.wpe.weight", block_size);
  for (int64_t i = 0; i < gpt.n_layer; ++i) {
    const std::string block = "transformer.h." + std::to_string(i);
    add_norm(block + ".ln_1");
    add_linear(block + ".attn.c_attn", 3 * width, width);
    add_linear(block + ".attn.c_proj", width, width);
    add_norm(block + ".ln_2");
    add_linear(block + ".mlp.c_fc", 4 * width, width);
    add_linear(block + ".mlp.c_proj", width, 4 * width);
  }
  add_norm("transformer.ln_f");
  if (!gpt.tie_weights) add_table("lm_head.weight", vocab_size);
  return shapes;
}

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
  const auto parameters = gpt_parameter_shapes(gpt, vocab_size, config.data.block_size);
  const auto layout = gpt_layout(gpt, vocab_size, config.data.block_size);
  const StageLoad load = stage_load(config, layout, place);
  const double activations = activation_bytes(sizes, gpt, place.cuda, load);
  double logits = 0.0;
  if (load.last) {
    const LossSizes loss{sizes.tokens,        sizes.width,      sizes.vocab_size, sizes.compute,
                         gpt.loss_chunk_size, sizes.shared > 1, load.finished};
    const double padding = padding_of(gpt.pad_vocab_to_multiple_of, sizes.vocab_size, place);
    const double recomputed =
        gpt.activation_checkpointing ? block_activations(sizes, gpt, place.cuda) : 0.0;
    logits = loss_bytes(config, place, {loss, padding, activations, recomputed});
  }
  // The logits are freed before the blocks are computed backward.
  const double workspace = std::max(0.0, block_workspace(sizes, gpt, place.cuda) - logits);
  const double adapters = adapter_activation_bytes(config, parameters, place) /
                          (gpt.activation_checkpointing ? sizes.layers : 1.0);
  const auto own = shapes_of_rank(parameters, layout, config, place.stage);
  return rank_items(config, parameters, place, layout,
                    {{"activations", whole_bytes(activations + workspace + adapters)},
                     {"logits", whole_bytes(logits)},
                     {"weight_copies", whole_bytes(weight_copy_bytes(config, own, place))}});
}

}  // namespace ddp::train
