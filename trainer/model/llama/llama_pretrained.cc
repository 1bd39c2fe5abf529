#include "trainer/model/llama/llama_pretrained.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "trainer/config/keys/key_rows.h"
#include "trainer/model/llama/llama_rope.h"
#include "trainer/model/llama/llama_types.h"
#include "trainer/model/llama/shape_values.h"
#include "trainer/model/load/pretrained_files.h"
#include "trainer/model/load/pretrained_json.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

constexpr const char* kGelu = "gelu_pytorch_tanh";

/// Replaces transformers' defaults by the file's values.
void read_llama_sizes(LlamaShape& shape, const PretrainedValues& values, const char* inner_key) {
  shape.n_layer = values.number("num_hidden_layers", shape.n_layer, kMostLayers);
  shape.n_head = values.number("num_attention_heads", shape.n_head, kMostLayers);
  const bool as_queries = shape.n_kv_head == 0 || values.is_null("num_key_value_heads");
  shape.n_kv_head = values.number("num_key_value_heads",
                                  as_queries ? shape.n_head : shape.n_kv_head, kMostLayers);
  shape.n_embd = values.number("hidden_size", shape.n_embd, kMostWidth);
  const bool by_width = shape.head_dim == 0 || values.is_null("head_dim");
  const int64_t head_dim =
      by_width ? std::max<int64_t>(1, shape.n_embd / shape.n_head) : shape.head_dim;
  shape.head_dim = values.number("head_dim", head_dim, kMostLayers);
  shape.intermediate = values.number(inner_key, shape.intermediate, kMostWidth);
  shape.norm_eps = values.real("rms_norm_eps", shape.norm_eps, kAbove0);
  shape.tie_weights = values.flag("tie_word_embeddings", shape.tie_weights);
}

/// transformers 5 calls the experts of all classes local.
void read_experts(LlamaShape& shape, const PretrainedValues& values) {
  const char* key = values.has("num_experts") ? "num_experts" : "num_local_experts";
  shape.n_expert = values.number(key, shape.n_expert, kMostLayers);
  shape.n_expert_per_token =
      values.number("num_experts_per_tok", shape.n_expert_per_token, kMostLayers);
  if (!shape.norm_topk_prob) shape.norm_topk_prob = values.flag("norm_topk_prob", false);
  shape.router_aux_loss_coef =
      values.real("router_aux_loss_coef", shape.router_aux_loss_coef, kAtLeast0);
}

void read_window(LlamaShape& shape, const PretrainedValues& values) {
  shape.sliding_window =
      values.is_null("sliding_window")
          ? 0
          : values.number("sliding_window", shape.sliding_window, kMostPositions);
}

/// The values of layer_types.
std::vector<std::string> layer_types_of(const LlamaShape& shape) {
  std::vector<std::string> types;
  for (int64_t i = 0; i < shape.n_layer; ++i)
    types.emplace_back(window_of(shape, i) > 0 ? "sliding_attention" : "full_attention");
  return types;
}

/// Which of Gemma's layers have the window. An uneven pattern is found by layer_types_of().
void read_pattern(LlamaShape& shape, const PretrainedValues& values, const nlohmann::json& types,
                  const LlamaType& type) {
  if (!types.is_array()) {
    if (type.has_local_rope)
      shape.full_attention_every =
          values.number("sliding_window_pattern", shape.full_attention_every, kMostLayers);
    return;
  }
  const auto first = std::find(types.begin(), types.end(), "full_attention") - types.begin();
  shape.full_attention_every = first == std::ssize(types) ? 0 : first + 1;
  if (first == 0) shape.full_attention_every = shape.sliding_window = 0;
}

/// null: none.
double real_or_0(const PretrainedValues& values, const char* key, double otherwise) {
  return values.is_null(key) ? 0.0 : values.real(key, otherwise, kAtLeast0);
}

void read_softcaps(LlamaShape& shape, const PretrainedValues& values) {
  shape.query_pre_attn_scalar =
      values.real("query_pre_attn_scalar", shape.query_pre_attn_scalar, kAbove0);
  shape.attn_logit_softcapping =
      real_or_0(values, "attn_logit_softcapping", shape.attn_logit_softcapping);
  shape.final_logit_softcapping =
      real_or_0(values, "final_logit_softcapping", shape.final_logit_softcapping);
}

std::vector<std::string> unsupported_in_llama(const nlohmann::json& config, const LlamaShape& shape,
                                              const LlamaType& type) {
  std::vector<std::string> found = differences_from_fixed(
      config,
      {type.is_gemma ? FixedKey{"hidden_activation", kGelu} : FixedKey{"hidden_act", "silu"},
       {"use_bidirectional_attention", false},
       {"attention_bias", false},
       {"attention_dropout", 0.0},
       {"embd_pdrop", 0.0},
       {"resid_pdrop", 0.0},
       {"mlp_bias", false},
       {"decoder_sparse_step", 1},
       {"mlp_only_layers", nlohmann::json::array()},
       {"router_jitter_noise", 0.0},
       {"use_sliding_window", false},
       {"is_encoder_decoder", false}});
  // Gemma 3's class has the key, and its layers ignore it.
  if (type.has_local_rope && shape.attn_logit_softcapping > 0)
    found.emplace_back("attn_logit_softcapping is set");
  const auto types = config.value("layer_types", nlohmann::json());
  const nlohmann::json own = layer_types_of(shape);
  if (!types.is_null() && types != own)
    found.push_back(
        fmt::format("layer_types is {}, not {}", shown(types.dump()), shown(own.dump())));
  return found;
}

/// `file`: the path of config.json.
PretrainedLlama llama_of_config(const nlohmann::json& config, const std::string& file) {
  const PretrainedValues values(config, file);
  const std::string name = values.text("model_type", "");
  const LlamaType* type = find_llama_type(name);
  if (type == nullptr) {
    std::vector<std::string_view> known;
    for (const LlamaType& each : llama_types()) known.push_back(each.model_type);
    throw UserError(
        fmt::format("{}: model_type is '{}', not one of {}; give the folder of such a model", file,
                    name, fmt::join(known, ", ")));
  }
  PretrainedLlama result;
  result.shape = type->defaults;
  read_llama_sizes(result.shape, values, type->inner_key);
  if (result.shape.n_expert > 0) read_experts(result.shape, values);
  if (type->has_window) read_window(result.shape, values);
  if (type->has_softcaps) {
    read_pattern(result.shape, values, config.value("layer_types", nlohmann::json()), *type);
    read_softcaps(result.shape, values);
  }
  result.positions = values.number("max_position_embeddings", type->positions, kMostPositions);
  values.number("vocab_size", 1, kMostPositions);  // the vocabulary is the tokenizer's
  result.unsupported = unsupported_in_llama(config, result.shape, *type);
  read_rope(result.shape, config, *type, file, result.positions, result.unsupported);
  return result;
}

void take_value(const nlohmann::json& from, int64_t& value) { value = from; }
void take_value(const nlohmann::json& from, double& value) { value = from; }
void take_value(const nlohmann::json& from, bool& value) { value = from; }
void take_value(const nlohmann::json& from, std::string& value) {
  if (!from.is_null()) value = from;
}
void take_value(const nlohmann::json& from, RopeScaling& value) {
  value = {from.at("rope_type"),
           from.at("factor"),
           from.at("low_freq_factor"),
           from.at("high_freq_factor"),
           from.at("original_max_position_embeddings"),
           from.value("attention_factor", value.attention_factor),
           from.value("beta_fast", value.beta_fast),
           from.value("beta_slow", value.beta_slow)};
}

PretrainedLlama llama_of_snapshot(const std::string& path) {
  PretrainedLlama result;
  with_pretrained_snapshot(
      path, {TaskKind::kCausalLm},
      [&](const nlohmann::json&, const nlohmann::json& config, const std::string&) {
        const std::string model = config.value("model", "gpt");
        if (model != "llama") {
          throw UserError(
              fmt::format("{}: is a snapshot of model {}; give one of llama", path, model));
        }
        const nlohmann::json& llama = config.at("llama_config");
        LlamaShape& shape = result.shape;
        shape.n_layer = llama.at("n_layer");
        shape.n_head = llama.at("n_head");
        shape.n_embd = llama.at("n_embd");
        each_shape_value([&](const char* name, auto member) {
          if (llama.contains(name)) take_value(llama.at(name), shape.*member);
        });
        shape.router_aux_loss_coef =
            llama.value("router_aux_loss_coef", shape.router_aux_loss_coef);
        result.positions = config.at("data_config").at("block_size");
      });
  return result;
}

std::string own_llama_name(const std::string& theirs) {
  constexpr std::string_view kPrefix = "model.";
  // Older versions saved the frequencies of rotary embeddings with the weights.
  if (theirs.ends_with("rotary_emb.inv_freq")) return "";
  return theirs.starts_with("lm_head.") || theirs.starts_with(kPrefix)
             ? theirs
             : std::string(kPrefix) + theirs;
}

/// 0 is null there.
template <class Number>
nlohmann::ordered_json or_null(Number value) {
  return value > 0 ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

/// Throws UserError unless a model of that config.json has `shape`.
void check_described(const nlohmann::json& config, const LlamaShape& shape,
                     const char* class_name) {
  const PretrainedLlama described = llama_of_config(config, "config.json");
  auto differences = shape_differences(described.shape, shape);
  differences.insert(differences.end(), described.unsupported.begin(), described.unsupported.end());
  if (differences.empty()) return;
  throw UserError(
      fmt::format("export: transformers' {} cannot be such a model: {}; use --format torch or "
                  "safetensors",
                  class_name, fmt::join(differences, "; ")));
}

}  // namespace

PretrainedLlama read_pretrained_llama(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) return llama_of_snapshot(path);
  const std::string file = path + "/config.json";
  PretrainedLlama result = llama_of_config(parse_pretrained_config(file), file);
  if (result.shape.tie_weights) result.head_note = own_head_note(path, kLlamaLayout);
  if (!result.head_note.empty()) result.shape.tie_weights = false;
  return result;
}

std::string llama_config_json(const LlamaShape& shape, int64_t vocab_size, int64_t positions,
                              std::optional<int32_t> end_of_text) {
  using OrderedJson = nlohmann::ordered_json;
  const LlamaType& type = llama_type_of(shape);
  const OrderedJson end_token = end_of_text ? OrderedJson(*end_of_text) : OrderedJson(nullptr);
  OrderedJson text = {
      {"architectures", {type.class_name}},
      {"model_type", type.model_type},
      {"vocab_size", vocab_size},
      // A dynamic scaling begins beyond it.
      {"max_position_embeddings", shape.rope_scaling.rope_type == "dynamic"
                                      ? shape.rope_scaling.original_max_position_embeddings
                                      : positions},
      {"hidden_size", shape.n_embd},
      {"num_hidden_layers", shape.n_layer},
      {"num_attention_heads", shape.n_head},
      {"num_key_value_heads", shape.n_kv_head},
      {"head_dim", shape.head_dim},
      {type.inner_key, shape.intermediate},
      {type.is_gemma ? "hidden_activation" : "hidden_act", type.is_gemma ? kGelu : "silu"},
      {"rms_norm_eps", shape.norm_eps},
      {"rope_theta", shape.rope_theta},
      {"rope_scaling", rope_scaling_json(shape.rope_scaling)},
      {"attention_bias", false},
      {"attention_dropout", 0.0},
      {"initializer_range", 0.02},
      {"tie_word_embeddings", shape.tie_weights},
      {"bos_token_id", end_token},
      {"eos_token_id", end_token},
      {"pad_token_id", nullptr},  // not Phi-3's 32000 of a smaller vocabulary
      {"torch_dtype", "float32"}};
  if (type.has_window) text["sliding_window"] = or_null(shape.sliding_window);
  if (type.has_softcaps) {
    text["layer_types"] = layer_types_of(shape);
    text["query_pre_attn_scalar"] = static_cast<int64_t>(shape.query_pre_attn_scalar);  // strict
    text["attn_logit_softcapping"] = or_null(shape.attn_logit_softcapping);
    text["final_logit_softcapping"] = or_null(shape.final_logit_softcapping);
  }
  if (type.has_local_rope) text["rope_local_base_freq"] = shape.rope_local_base_freq;
  if (type.has_partial_rotary) text["partial_rotary_factor"] = shape.partial_rotary_factor;
  if (shape.n_expert > 0) {
    text["num_local_experts"] = shape.n_expert;
    if (type.model_type == "qwen3_moe") text["num_experts"] = shape.n_expert;
    text["num_experts_per_tok"] = shape.n_expert_per_token;
    text["norm_topk_prob"] = shape.norm_topk_prob;
    text["router_aux_loss_coef"] = shape.router_aux_loss_coef;
  }
  check_described(nlohmann::json(text), shape, type.class_name);
  return text.dump(2) + "\n";
}

const PretrainedLayout kLlamaLayout = {
    "llama_config.init_from",
    own_llama_name,
    is_never_transposed,
    is_never_optional,
    nullptr,
    "embed_tokens.weight",
    "in Python, AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER) of "
    "transformers turns a pytorch_model.bin into one",
    {{"phi3", "qkv_proj", {"q_proj", "k_proj", "v_proj"}},
     {"phi3", "gate_up_proj", {"gate_proj", "up_proj"}}}};

}  // namespace ddp::train
