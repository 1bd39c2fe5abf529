#include "trainer/interop/export_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>

#include "trainer/interop/gguf_names.h"
#include "trainer/interop/weight_files.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/llama/llama.h"
#include "trainer/model/llama/llama_types.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"

namespace ddp::train {
namespace {

/// A model that llama.cpp has.
struct GgufKind {
  std::string_view model_type;  ///< In config.json.
  std::string_view architecture;
  bool is_permuted = false;  ///< Rotary embeddings turn neighbours there, halves of a head here.
  int64_t full_attention_every = 0;  ///< Where the file has no sliding_window_pattern.
  /// A model of that many layers divides scores by sqrt(width / heads).
  int64_t layers_with_wide_scale = 0;
};

constexpr GgufKind kGgufKinds[] = {{"gpt2", "gpt2"},
                                   {"llama", "llama", true},
                                   {"mistral", "llama", true},
                                   {"qwen2", "qwen2"},
                                   {"qwen3", "qwen3"},
                                   {"phi3", "phi3"},
                                   {"mixtral", "llama", true},
                                   {"qwen3_moe", "qwen3moe"},
                                   {.model_type = "gemma2",
                                    .architecture = "gemma2",
                                    .full_attention_every = 2,
                                    .layers_with_wide_scale = 46},
                                   {.model_type = "gemma3_text",
                                    .architecture = "gemma3",
                                    .full_attention_every = 6,
                                    .layers_with_wide_scale = 62}};

[[noreturn]] void refuse_gguf(const std::string& why) {
  throw UserError(fmt::format("--format gguf: {}; use --format huggingface", why));
}

const GgufKind& kind_of(const std::string& model_type) {
  for (const GgufKind& kind : kGgufKinds)
    if (kind.model_type == model_type) return kind;
  refuse_gguf(fmt::format("models of model_type '{}' are not written", model_type));
}

GgufType gguf_type(const ExportedModel& model) {
  if (model.to_q8_0) return GgufType::kQ8_0;
  return model.dtype == torch::kHalf       ? GgufType::kF16
         : model.dtype == torch::kBFloat16 ? GgufType::kBF16
                                           : GgufType::kF32;
}

/// The type that llama.cpp's converter gives a tensor in a file of `wanted`.
GgufType type_in_file(const std::string& name, const std::vector<int64_t>& shape, GgufType wanted) {
  if (shape.size() < 2 || !name.ends_with(".weight") || name.ends_with("_norm.weight") ||
      name.ends_with(".ffn_gate_inp.weight") || name == "position_embd.weight")
    return GgufType::kF32;
  const bool fits = wanted != GgufType::kQ8_0 || shape.back() % kQ8Block == 0;
  return fits ? wanted : GgufType::kF16;
}

void write_tensor(const std::string& name, const torch::Tensor& values, GgufType type,
                  const GgufSink& sink) {
  if (type != GgufType::kQ8_0) {
    const auto dtype = type == GgufType::kF16    ? torch::kHalf
                       : type == GgufType::kBF16 ? torch::kBFloat16
                                                 : torch::kFloat32;
    const torch::Tensor rounded =
        in_dtype(std::vector<NamedTensor>{{name, values}}, dtype).front().tensor;
    return sink(rounded.const_data_ptr(), rounded.nbytes());
  }
  const torch::Tensor numbers = values.contiguous();
  const auto [least, largest] = at::aminmax(numbers);
  // Negated so that NaN is refused, too.
  if (!(largest.item<float>() <= kLargestQ8 && least.item<float>() >= -kLargestQ8))
    throw UserError(fmt::format(
        "export: {} has numbers beyond the range of q8_0; use --dtype bf16 or fp32", name));
  write_q8_0({numbers.const_data_ptr<float>(), static_cast<std::size_t>(numbers.numel())}, sink);
}

/// Rows of each head: pairs that are half a head apart become neighbours.
torch::Tensor permuted(const torch::Tensor& rows, int64_t heads) {
  return rows.reshape({heads, 2, rows.size(0) / heads / 2, -1})
      .transpose(1, 2)
      .reshape(rows.sizes());
}

constexpr std::string_view kExperts = ".experts.";

/// Joins a layer's "mlp.experts.7.up_proj.weight" of each expert to "mlp.experts.up_proj.weight".
std::vector<FileWeight> with_stacked_experts(std::vector<FileWeight> weights) {
  std::vector<FileWeight> result;
  for (FileWeight& weight : weights) {
    const auto at = weight.name.find(kExperts);
    if (at != std::string::npos) {
      const auto number = at + kExperts.size();
      weight.name.erase(number, weight.name.find('.', number) + 1 - number);
      const auto stack = std::ranges::find(result, weight.name, &FileWeight::name);
      if (stack != result.end()) {
        stack->parts.push_back(std::move(weight.parts.front()));
        continue;
      }
    }
    result.push_back(std::move(weight));
  }
  return result;
}

class GgufWeights {
 public:
  GgufWeights(const ExportedModel& model, const GgufKind& kind)
      : kind_(kind), wanted_(gguf_type(model)) {
    if (kind.model_type != "gpt2") shape_ = &llama_of(model.config);
    if (shape_ != nullptr && shape_->rope_scaling.rope_type == "llama3") add_rope_factors();
    const auto& layout = *causal_architecture(model.config).huggingface_layout();
    for (FileWeight& weight :
         with_stacked_experts(fused_weights(model.weights, layout, kind.model_type)))
      add(std::move(weight));
  }

  std::vector<GgufTensor> tensors;

 private:
  bool of_gemma() const { return shape_ != nullptr && family_of(*shape_).is_gemma; }

  void add(FileWeight weight) {
    GgufTensor tensor{gguf_name(weight.name, of_gemma()), weight.parts.front().sizes().vec()};
    if (weight.name.find(kExperts) != std::string::npos)
      tensor.shape.insert(tensor.shape.begin(), std::ssize(weight.parts));
    else
      for (std::size_t i = 1; i < weight.parts.size(); ++i)
        tensor.shape.front() += weight.parts[i].size(0);
    tensor.type = type_in_file(tensor.name, tensor.shape, wanted_);
    tensor.write = [this, weight = std::move(weight), type = tensor.type](const GgufSink& sink) {
      write_tensor(weight.name, values_of(weight), type, sink);
    };
    tensors.push_back(std::move(tensor));
  }

  torch::Tensor values_of(const FileWeight& weight) const {
    const torch::Tensor values = weight.whole().to(torch::kCPU, torch::kFloat32);
    if (of_gemma() && weight.name.ends_with("norm.weight")) return values + 1;
    if (kind_.is_permuted && weight.name.ends_with(".q_proj.weight"))
      return permuted(values, shape_->n_head);
    if (kind_.is_permuted && weight.name.ends_with(".k_proj.weight"))
      return permuted(values, shape_->n_kv_head);
    return values;
  }

  /// What llama3's scaling divides each frequency by.
  void add_rope_factors() {
    LlamaShape unscaled = *shape_;
    unscaled.rope_scaling = {};
    const RopeScaling& scaling = shape_->rope_scaling;
    const auto original = static_cast<double>(scaling.original_max_position_embeddings);
    const auto lengths = 2 * std::numbers::pi / rotary_frequencies(unscaled);
    const auto smooth = (original / lengths - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
    const auto between = 1 / ((1 - smooth) / scaling.factor + smooth);
    const auto factors =
        torch::where(lengths < original / scaling.high_freq_factor, torch::ones_like(lengths),
                     torch::where(lengths > original / scaling.low_freq_factor,
                                  torch::full_like(lengths, scaling.factor), between));
    tensors.push_back({"rope_freqs.weight", factors.sizes().vec(), GgufType::kF32,
                       [factors](const GgufSink& sink) {
                         write_tensor("rope_freqs.weight", factors, GgufType::kF32, sink);
                       }});
  }

  const GgufKind& kind_;
  const GgufType wanted_;
  const LlamaShape* shape_ = nullptr;  // null: GPT-2
};

/// Adds keys that begin with the architecture's name.
class ArchitectureKeys {
 public:
  ArchitectureKeys(GgufMetadata& keys, const GgufKind& kind) : keys_(keys), kind_(kind) {}
  void add(const char* name, GgufValue value) {
    keys_.emplace_back(fmt::format("{}.{}", kind_.architecture, name), std::move(value));
  }
  void number(const char* name, int64_t value) { add(name, static_cast<uint32_t>(value)); }
  void real(const char* name, double value) { add(name, static_cast<float>(value)); }

 private:
  GgufMetadata& keys_;
  const GgufKind& kind_;
};

void check_gemma(const LlamaShape& shape, const GgufKind& kind) {
  const bool is_wide = shape.n_layer == kind.layers_with_wide_scale;
  const int64_t scale = is_wide ? shape.n_embd / shape.n_head : shape.head_dim;
  if (shape.query_pre_attn_scalar != static_cast<double>(scale))
    refuse_gguf(fmt::format("llama.cpp takes {} for query_pre_attn_scalar={}", scale,
                            shape.query_pre_attn_scalar));
  if (kind.model_type == "gemma2" && !shape.tie_weights)
    refuse_gguf("llama.cpp has no Gemma 2 with tie_weights=false");
  if (kind.model_type == "gemma2" &&
      (shape.attn_logit_softcapping == 0 || shape.final_logit_softcapping == 0))
    refuse_gguf("llama.cpp has no Gemma 2 without soft-capping");
}

void check_rope(const RopeScaling& scaling, const GgufKind& kind, bool of_gemma) {
  const std::string& type = scaling.rope_type;
  if ((type == "llama3" && kind.architecture != "llama") ||
      (of_gemma && type != "default" && type != "linear"))
    refuse_gguf(
        fmt::format("llama.cpp has no rope_scaling.rope_type={} for {}", type, kind.architecture));
  const RopeScaling fixed;
  if (type == "yarn" &&
      (scaling.beta_fast != fixed.beta_fast || scaling.beta_slow != fixed.beta_slow))
    refuse_gguf(
        fmt::format("llama.cpp takes {} and {} for rope_scaling.beta_fast={} and beta_slow={}",
                    fixed.beta_fast, fixed.beta_slow, scaling.beta_fast, scaling.beta_slow));
}

void add_rope(ArchitectureKeys& keys, const LlamaShape& shape) {
  const RopeScaling& scaling = shape.rope_scaling;
  keys.number("rope.dimension_count", rotary_width(shape));
  keys.real("rope.freq_base", shape.rope_theta);
  if (shape.rope_local_base_freq > 0) keys.real("rope.freq_base_swa", shape.rope_local_base_freq);
  if (scaling.rope_type != "linear" && scaling.rope_type != "yarn") return;
  keys.add("rope.scaling.type", scaling.rope_type);
  keys.real("rope.scaling.factor", scaling.factor);
  if (scaling.rope_type == "linear") return;
  keys.number("rope.scaling.original_context_length", scaling.original_max_position_embeddings);
  // llama.cpp multiplies it by the default.
  if (scaling.attention_factor > 0)
    keys.real("rope.scaling.attn_factor",
              scaling.attention_factor / (0.1 * std::log(std::max(1.0, scaling.factor)) + 1));
}

/// The context within which llama.cpp computes the same.
int64_t same_context(const LlamaShape& shape, const GgufKind& kind, int64_t positions) {
  if (shape.rope_scaling.rope_type == "dynamic")
    positions = std::min(positions, shape.rope_scaling.original_max_position_embeddings);
  if (kind.full_attention_every > 0 || shape.sliding_window == 0 ||
      shape.sliding_window >= positions)
    return positions;
  fmt::print(stderr,
             "note: export: llama.cpp has no sliding window for {}: the file's context is the "
             "window's {} of {} tokens\n",
             kind.model_type, shape.sliding_window, positions);
  return shape.sliding_window;
}

void add_windows(ArchitectureKeys& keys, const LlamaShape& shape, const GgufKind& kind) {
  const bool has_window = shape.sliding_window > 0;
  if (has_window) keys.number("attention.sliding_window", shape.sliding_window);
  const int64_t full_every = has_window ? shape.full_attention_every : 1;
  if (full_every != kind.full_attention_every)
    keys.number("attention.sliding_window_pattern", full_every);
}

void add_experts(ArchitectureKeys& keys, const LlamaShape& shape, const GgufKind& kind) {
  if (!shape.norm_topk_prob)
    refuse_gguf(fmt::format("llama.cpp has no {} with norm_topk_prob=false", kind.architecture));
  keys.number("expert_count", shape.n_expert);
  keys.number("expert_used_count", shape.n_expert_per_token);
  if (kind.model_type == "qwen3_moe") keys.number("expert_feed_forward_length", shape.intermediate);
}

void add_llama_keys(ArchitectureKeys& keys, const LlamaShape& shape, const GgufKind& kind,
                    int64_t positions) {
  const bool of_gemma = family_of(shape).is_gemma;
  check_rope(shape.rope_scaling, kind, of_gemma);
  if (of_gemma) check_gemma(shape, kind);
  if (shape.n_expert > 0) add_experts(keys, shape, kind);
  keys.number("block_count", shape.n_layer);
  keys.number("context_length", same_context(shape, kind, positions));
  keys.number("embedding_length", shape.n_embd);
  keys.number("feed_forward_length", shape.intermediate);
  keys.number("attention.head_count", shape.n_head);
  keys.number("attention.head_count_kv", shape.n_kv_head);
  keys.number("attention.key_length", shape.head_dim);
  keys.number("attention.value_length", shape.head_dim);
  keys.real("attention.layer_norm_rms_epsilon", shape.norm_eps);
  add_rope(keys, shape);
  if (of_gemma) add_windows(keys, shape, kind);
  // Without it llama.cpp takes the window of Phi-3 mini.
  if (kind.model_type == "phi3") keys.number("attention.sliding_window", shape.sliding_window);
  if (shape.attn_logit_softcapping > 0)
    keys.real("attn_logit_softcapping", shape.attn_logit_softcapping);
  if (shape.final_logit_softcapping > 0)
    keys.real("final_logit_softcapping", shape.final_logit_softcapping);
}

void add_gpt2_keys(ArchitectureKeys& keys, const GptConfig& gpt, int64_t positions) {
  keys.number("block_count", gpt.n_layer);
  keys.number("context_length", positions);
  keys.number("embedding_length", gpt.n_embd);
  keys.number("feed_forward_length", 4 * gpt.n_embd);
  keys.number("attention.head_count", gpt.n_head);
  keys.real("attention.layer_norm_epsilon", 1e-5);
  if (gpt.activation == Activation::kGelu)
    fmt::print(stderr,
               "note: export: llama.cpp computes gpt_config.activation=gelu as gelu_tanh: its "
               "logits differ a little\n");
}

/// llama.cpp's number for what most tensors of a file are.
uint32_t file_type(GgufType type) {
  return type == GgufType::kF32 ? 0 : type == GgufType::kF16 ? 1 : type == GgufType::kQ8_0 ? 7 : 32;
}

std::string name_of_folder(const std::string& folder) {
  const auto path = std::filesystem::absolute(folder).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

GgufMetadata general_keys(const ExportedModel& model, const GgufKind& kind,
                          const std::string& folder) {
  constexpr uint32_t kQuantizationVersion = 2;
  return {{"general.architecture", std::string(kind.architecture)},
          {"general.type", std::string("model")},
          {"general.name", name_of_folder(folder)},
          {"general.file_type", file_type(gguf_type(model))},
          {"general.quantization_version", kQuantizationVersion}};
}

/// The positions of config.json, which may be those of the run's base.
int64_t positions_in(const nlohmann::json& config, int64_t otherwise) {
  const auto value = config.value("max_position_embeddings", nlohmann::json());
  const bool fits =
      value.is_number_integer() && value > 0 && value <= std::numeric_limits<int32_t>::max();
  return fits ? value.get<int64_t>() : otherwise;
}

}  // namespace

std::vector<std::string> export_gguf(const ExportedModel& model, const Tokenizer& tokenizer,
                                     const TextFiles& texts, const std::string& folder) {
  constexpr const char* kFile = "model.gguf";
  const auto config = parse_bounded_json(texts.at("config.json"), "config.json");
  const std::string type = config.value("model_type", "");
  const GgufKind& kind = kind_of(type);
  GgufMetadata of_tokenizer = gguf_tokenizer(tokenizer, texts, model.chat);
  GgufMetadata metadata = general_keys(model, kind, folder);
  ArchitectureKeys keys(metadata, kind);
  keys.number("vocab_size", model.vocab_size);
  if (kind.model_type == "gpt2")
    add_gpt2_keys(keys, model.config.gpt, model.config.data.block_size);
  else
    add_llama_keys(keys, llama_of(model.config), kind,
                   positions_in(config, model.config.data.block_size));
  std::move(of_tokenizer.begin(), of_tokenizer.end(), std::back_inserter(metadata));
  write_gguf(fmt::format("{}/{}", folder, kFile), metadata, GgufWeights(model, kind).tensors);
  return {kFile};
}

}  // namespace ddp::train
