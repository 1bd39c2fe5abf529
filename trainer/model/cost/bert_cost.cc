#include "trainer/model/cost/bert_cost.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "trainer/model/bert_family.h"
#include "trainer/model/lora.h"
#include "trainer/model/prompt_tuning.h"

namespace ddp::train {
namespace {

constexpr double kFloatBytes = 4.0;
constexpr double kMaskByte = 1.0;
/// A CPU's heap has holes between short-lived blocks: a share of the activations, measured: 0.10 to
/// 0.33.
constexpr double kHeapHoles = 0.22;

/// Sizes of one micro-batch, as double: no overflow.
struct BertBatch {
  BertBatch(const Config& config, const BertSizes& sizes, const ComputePlace& place)
      : tokens(static_cast<double>(config.trainer.batch_size * sizes.longest_row)),
        width(static_cast<double>(config.bert.n_embd)),
        inner(static_cast<double>(config.bert.intermediate)),
        scores(tokens * static_cast<double>(config.bert.n_head * sizes.longest_row)),
        compute(config.trainer.use_amp ? 2.0 : kFloatBytes),
        noise(place.cuda ? kMaskByte : kFloatBytes),
        heap(place.cuda ? 1.0 : 1.0 + kHeapHoles),
        // No fused attention with dropout on CPUs.
        plain_attention(config.bert.attn_pdrop > 0 && !place.cuda) {}

  double tokens;
  double width;
  double inner;
  double scores;   ///< Elements of a layer's attention scores: [B, H, T, T].
  double compute;  ///< Bytes of an element in matrix products.
  double noise;    ///< Bytes of an element of a dropout mask: a product with floats on the CPU.
  double heap;     ///< What activations take of it, for each of their bytes.
  bool plain_attention;
};

double weights_of_layer(const BertConfig& bert) {
  const auto width = static_cast<double>(bert.n_embd);
  return 4 * width * width + 2 * width * static_cast<double>(bert.intermediate);
}

/// What the backward pass of one layer needs, bytes.
double layer_activations(const BertBatch& b, const BertConfig& bert) {
  const double row = b.tokens * b.width;
  double bytes = (1 + 3 + 1 + 1) * row * b.compute;  // input, q k v, y, input of the wide layer
  bytes += 2 * row * kFloatBytes;                    // the inputs of both norms
  bytes += 2 * b.tokens * b.inner * b.compute;       // around the GELU
  if (bert.hidden_pdrop > 0) bytes += 2 * row * b.noise;
  // q, k and v once more, then softmax, noise and product.
  if (b.plain_attention) bytes += 3 * row * b.compute + 3 * b.scores * kFloatBytes;
  return bytes;
}

/// What exists besides while the last layer is computed backward: gradients around the GELU; then,
/// when those are freed, the gradients of the attention scores.
double layer_workspace(const BertBatch& b) {
  const double row = b.tokens * b.width * b.compute;
  const double wide = b.tokens * b.inner * b.compute;
  const double scores = b.plain_attention ? 2 * b.scores * kFloatBytes : 0.0;
  return std::max(2 * wide + 2 * row, scores - 2 * wide);
}

double hidden_tokens(const BertBatch& b, const BertSizes& sizes) {
  return std::ceil(b.tokens * sizes.hidden_share);
}

/// Log-probabilities, their gradient and that of the logits; in lower precision a copy of both.
double bert_logit_bytes(const BertBatch& b, const BertSizes& sizes) {
  const double copies = b.compute < kFloatBytes ? 2 * b.compute : 0.0;
  return hidden_tokens(b, sizes) * static_cast<double>(sizes.vocab_size) *
         (3 * kFloatBytes + copies);
}

int64_t whole(double bytes) { return static_cast<int64_t>(std::llround(bytes)); }

}  // namespace

std::vector<ParameterPart> bert_parameter_parts(const BertConfig& bert, const BertSizes& sizes) {
  const int64_t width = bert.n_embd;
  const int64_t layer = 4 * (width * width + width) + 2 * width * bert.intermediate +
                        bert.intermediate + width + 4 * width;
  const int64_t dense = width * width + width;
  std::vector<ParameterPart> parts = {
      {"token_embedding", sizes.vocab_size * width},
      {"position_embedding", (sizes.positions + bert.position_offset) * width},
      {"other_embeddings", (bert.type_vocab_size + 2) * width},  // of token types; and the norm
      {"layers", bert.n_layer * layer}};
  if (sizes.classes == 0) {
    parts.push_back({"head", dense + 2 * width + sizes.vocab_size});  // its matrix is tied
  } else {
    parts.push_back({"pooler", dense});
    parts.push_back({"head", (width + 1) * sizes.classes});
  }
  return parts;
}

ParameterRole bert_role(std::string_view name, int64_t dimensions) {
  if (name.find("_embeddings.") != std::string_view::npos || name == kPromptName)
    return ParameterRole::kEmbedding;
  if (dimensions < 2) return ParameterRole::kOther;
  const bool layer = name.find(".layer.") != std::string_view::npos;
  return layer ? ParameterRole::kHidden : ParameterRole::kLinear;
}

std::vector<ParameterShape> bert_parameter_shapes(const BertConfig& bert, const BertSizes& sizes) {
  const BertTraits& traits = traits_of(bert.family);
  const int64_t width = bert.n_embd;
  const std::string base = traits.base;
  std::vector<ParameterShape> shapes;
  const auto add_table = [&](const std::string& kind, int64_t rows) {
    if (rows == 0) return;
    shapes.push_back({base + ".embeddings." + kind + "_embeddings.weight",
                      {rows, width},
                      ParameterRole::kEmbedding});
  };
  const auto add_norm = [&](const std::string& name) {
    add_layer(shapes, name, {width}, ParameterRole::kOther);
  };
  const auto add_dense = [&](const std::string& name, int64_t outputs, int64_t inputs) {
    add_layer(shapes, name, {outputs, inputs}, bert_role(name, 2));
  };
  add_table("word", sizes.vocab_size);
  add_table("position", sizes.positions + bert.position_offset);
  add_table("token_type", bert.type_vocab_size);
  add_norm(base + ".embeddings.LayerNorm");
  for (int64_t i = 0; i < bert.n_layer; ++i) {
    const std::string layer = base + "." + traits.layers + "." + std::to_string(i) + ".";
    for (const char* part : {traits.query, traits.key, traits.value, traits.attention_output})
      add_dense(layer + part, width, width);
    add_norm(layer + traits.attention_norm);
    add_dense(layer + traits.inner, bert.intermediate, width);
    add_dense(layer + traits.output, width, bert.intermediate);
    add_norm(layer + traits.output_norm);
  }
  if (sizes.classes == 0) {
    shapes.push_back({traits.decoder_bias, {sizes.vocab_size}, ParameterRole::kOther});
    add_dense(traits.transform, width, width);
    add_norm(traits.transform_norm);
  } else {
    add_dense(traits.pooler, width, width);
    add_dense(traits.classifier, sizes.classes, width);
  }
  return shapes;
}

double bert_flops(const BertConfig& bert, const BertSizes& sizes) {
  constexpr double kPerWeight = 6.0;
  constexpr double kPerScore = 12.0;
  const auto width = static_cast<double>(bert.n_embd);
  const auto layers = static_cast<double>(bert.n_layer);
  const double encoder = kPerWeight * layers * weights_of_layer(bert) * sizes.mean_row +
                         kPerScore * layers * width * sizes.mean_row * sizes.mean_row;
  const auto answers = static_cast<double>(sizes.classes == 0 ? sizes.vocab_size : sizes.classes);
  const double times = sizes.classes == 0 ? sizes.mean_row * sizes.hidden_share : 1.0;
  return encoder + kPerWeight * times * (width * width + answers * width);
}

std::vector<MemoryItem> bert_memory_items(const Config& config, const BertSizes& sizes,
                                          const ComputePlace& place) {
  const BertConfig& bert = config.bert;
  const BertBatch batch(config, sizes, place);
  const auto layers = static_cast<double>(bert.n_layer);
  const double row = batch.tokens * batch.width;
  double activations = layers * layer_activations(batch, bert);
  activations += 2 * row * kFloatBytes;  // around the norm of the embeddings
  if (bert.hidden_pdrop > 0) activations += row * batch.noise;
  Config rows = config;
  rows.data.block_size = sizes.longest_row;
  activations += adapter_activation_bytes(rows, bert_parameter_shapes(bert, sizes), place);
  activations += 5 * hidden_tokens(batch, sizes) * batch.width * kFloatBytes;  // the head's
  // The logits are freed before the layers are computed backward.
  const double logits = bert_logit_bytes(batch, sizes);
  const double workspace = std::max(0.0, layer_workspace(batch) - logits);
  return rank_items(
      config, bert_parameter_shapes(bert, sizes), place,
      {{"activations", whole(batch.heap * (activations + workspace))}, {"logits", whole(logits)}});
}

}  // namespace ddp::train
