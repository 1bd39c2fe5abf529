#include "trainer/model/llama/llama_pretrained.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "trainer/model/llama/llama_types.h"
#include "trainer/model/llama/shape_values.h"
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
  shape.norm_eps = values.real("rms_norm_eps", shape.norm_eps);
  shape.tie_weights = values.flag("tie_word_embeddings", shape.tie_weights);
}

/// transformers 5 calls the experts of all classes local.
void read_experts(LlamaShape& shape, const PretrainedValues& values) {
  const char* key = values.has("num_experts") ? "num_experts" : "num_local_experts";
  shape.n_expert = values.number(key, shape.n_expert, kMostLayers);
  shape.n_expert_per_token =
      values.number("num_experts_per_tok", shape.n_expert_per_token, kMostLayers);
  if (!shape.norm_topk_prob) shape.norm_topk_prob = values.flag("norm_topk_prob", false);
  shape.router_aux_loss_coef = values.real("router_aux_loss_coef", shape.router_aux_loss_coef);
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
  return values.is_null(key) ? 0.0 : values.real(key, otherwise);
}

void read_softcaps(LlamaShape& shape, const PretrainedValues& values) {
  shape.query_pre_attn_scalar = values.real("query_pre_attn_scalar", shape.query_pre_attn_scalar);
  shape.attn_logit_softcapping =
      real_or_0(values, "attn_logit_softcapping", shape.attn_logit_softcapping);
  shape.final_logit_softcapping =
      real_or_0(values, "final_logit_softcapping", shape.final_logit_softcapping);
}

/// The places in which partial_rotary_factor is in files of transformers 5, 4 and 4.
constexpr const char* kRotaryShares[] = {"/rope_parameters/partial_rotary_factor",
                                         "/partial_rotary_factor",
                                         "/rope_scaling/partial_rotary_factor"};

nlohmann::json rotary_share(const nlohmann::json& config) {
  for (const char* place : kRotaryShares) {
    auto share = config.value(nlohmann::json::json_pointer(place), nlohmann::json());
    if (!share.is_null()) return share;
  }
  return 1.0;
}

/// DeepSeek's mscale and mscale_all_dim become the attention_factor that they mean.
void read_yarn(RopeScaling& scaling, const PretrainedValues& values, int64_t positions) {
  if (!values.has("factor"))
    scaling.factor = static_cast<double>(positions) /
                     static_cast<double>(scaling.original_max_position_embeddings);
  const double log_factor = std::log(std::max(1.0, scaling.factor));
  const double mscale = values.real("mscale", 0.0);
  const double of_all = values.real("mscale_all_dim", 0.0);
  const bool both = mscale != 0.0 && of_all != 0.0;
  scaling.attention_factor = values.real(
      "attention_factor", both ? (0.1 * mscale * log_factor + 1) / (0.1 * of_all * log_factor + 1)
                               : scaling.attention_factor);
  scaling.beta_fast = values.real("beta_fast", scaling.beta_fast);
  scaling.beta_slow = values.real("beta_slow", scaling.beta_slow);
}

/// transformers 5 writes rope_parameters, with rope_theta in it; older versions rope_scaling, null
/// or with "type" in place of "rope_type", and rope_theta next to it.
/// Gemma 3's version 5 has them for each kind of layer.
void read_rope(LlamaShape& shape, const nlohmann::json& config, const std::string& file,
               int64_t positions) {
  const PretrainedValues beside(config, file);
  const auto kinds = config.value("rope_parameters", nlohmann::json());
  if (kinds.is_object() && kinds.contains("full_attention")) {
    const nlohmann::json local = kinds.value("sliding_attention", nlohmann::json::object());
    shape.rope_local_base_freq =
        PretrainedValues(local, file).real("rope_theta", shape.rope_local_base_freq);
    return read_rope(shape, {{"rope_parameters", kinds["full_attention"]}}, file, positions);
  }
  shape.rope_theta = beside.real("rope_theta", shape.rope_theta);
  const char* key = beside.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!beside.has(key)) return;
  if (!config[key].is_object())
    throw UserError(
        fmt::format("{}: {} is {}; {}", file, key, config[key].dump(), kHowToMakePretrained));
  const PretrainedValues values(config[key], file);
  RopeScaling& scaling = shape.rope_scaling;
  shape.rope_theta = values.real("rope_theta", shape.rope_theta);
  scaling.rope_type = values.text("rope_type", values.text("type", scaling.rope_type));
  if (scaling.rope_type == "default") return;
  scaling.factor = values.real("factor", scaling.factor);
  if (scaling.rope_type == "dynamic") scaling.original_max_position_embeddings = positions;
  if (scaling.rope_type != "llama3" && scaling.rope_type != "yarn") return;
  constexpr const char* kOriginal = "original_max_position_embeddings";
  scaling.original_max_position_embeddings =
      beside.number(kOriginal, values.number(kOriginal, positions, kMostPositions), kMostPositions);
  scaling.low_freq_factor = values.real("low_freq_factor", scaling.low_freq_factor);
  scaling.high_freq_factor = values.real("high_freq_factor", scaling.high_freq_factor);
  if (scaling.rope_type == "yarn") read_yarn(scaling, values, positions);
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
  const std::string& rope_type = shape.rope_scaling.rope_type;
  if (rope_type != "default" && !(type.scales_rope && is_rope_type(rope_type)))
    found.push_back(fmt::format("rope_scaling.rope_type is {}, not {}", shown(rope_type),
                                type.scales_rope ? fmt::format("{}", fmt::join(kRopeTypes, ", "))
                                                 : std::string("default")));
  for (const char* place : {"/rope_parameters/truncate", "/rope_scaling/truncate"}) {
    if (config.value(nlohmann::json::json_pointer(place), nlohmann::json()) == false)
      found.emplace_back("rope_scaling.truncate is false, not true");
  }
  if (!type.has_partial_rotary && rotary_share(config) != 1.0)
    found.emplace_back("partial_rotary_factor is not 1");
  if (type.has_local_rope) {
    const nlohmann::json::json_pointer local("/rope_parameters/sliding_attention/rope_type");
    if (const auto kind = config.value(local, nlohmann::json("default")); kind != "default")
      found.push_back(fmt::format("rope_parameters.sliding_attention.rope_type is {}, not default",
                                  shown(kind.dump())));
    // Its class has the key, and its layers ignore it.
    if (shape.attn_logit_softcapping > 0) found.emplace_back("attn_logit_softcapping is set");
  }
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
  if (type->has_local_rope)
    result.shape.rope_local_base_freq =
        values.real("rope_local_base_freq", result.shape.rope_local_base_freq);
  result.positions = values.number("max_position_embeddings", type->positions, kMostPositions);
  read_rope(result.shape, config, file, result.positions);
  if (type->has_partial_rotary) {
    const nlohmann::json share = {{"partial_rotary_factor", rotary_share(config)}};
    result.shape.partial_rotary_factor =
        PretrainedValues(share, file).real("partial_rotary_factor", 1.0);
  }
  result.unsupported = unsupported_in_llama(config, result.shape, *type);
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
  return theirs == "lm_head.weight" || theirs.starts_with(kPrefix) ? theirs
                                                                   : std::string(kPrefix) + theirs;
}

nlohmann::ordered_json rope_scaling_json(const RopeScaling& scaling) {
  if (scaling.rope_type == "default") return nullptr;
  nlohmann::ordered_json json = {{"rope_type", scaling.rope_type}, {"factor", scaling.factor}};
  if (scaling.rope_type == "llama3") {
    json["low_freq_factor"] = scaling.low_freq_factor;
    json["high_freq_factor"] = scaling.high_freq_factor;
  }
  if (scaling.rope_type == "yarn") {
    if (scaling.attention_factor > 0) json["attention_factor"] = scaling.attention_factor;
    json["beta_fast"] = scaling.beta_fast;
    json["beta_slow"] = scaling.beta_slow;
  }
  if (json.size() > 2)
    json["original_max_position_embeddings"] = scaling.original_max_position_embeddings;
  return json;
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
  return std::filesystem::is_regular_file(path, ignored)
             ? llama_of_snapshot(path)
             : llama_of_config(parse_pretrained_config(path + "/config.json"),
                               path + "/config.json");
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
