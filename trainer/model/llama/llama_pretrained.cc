#include "trainer/model/llama/llama_pretrained.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "trainer/model/llama/shape_values.h"
#include "trainer/model/load/pretrained_json.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

constexpr std::string_view kQwen2 = "qwen2";
constexpr std::string_view kQwen3 = "qwen3";

void read_llama_sizes(LlamaShape& shape, const PretrainedValues& values, std::string_view type) {
  constexpr int64_t kHeadOfQwen3 = 128;
  shape.n_layer = values.number("num_hidden_layers", 32, kMostLayers);
  shape.n_head = values.number("num_attention_heads", 32, kMostLayers);
  shape.n_kv_head = values.number("num_key_value_heads", shape.n_head, kMostLayers);
  shape.n_embd = values.number("hidden_size", 4096, kMostWidth);
  shape.head_dim = values.number(
      "head_dim", type == kQwen3 ? kHeadOfQwen3 : std::max<int64_t>(1, shape.n_embd / shape.n_head),
      kMostLayers);
  shape.intermediate =
      values.number("intermediate_size", type == kLlamaType ? 11008 : 22016, kMostWidth);
}

/// transformers 5 writes rope_parameters, with rope_theta in it; older versions rope_scaling, null
/// or with "type" in place of "rope_type", and rope_theta next to it.
void read_rope(LlamaShape& shape, const nlohmann::json& config, const std::string& file) {
  const PretrainedValues beside(config, file);
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
  if (scaling.rope_type != "default") scaling.factor = values.real("factor", scaling.factor);
  if (scaling.rope_type != "llama3") return;
  scaling.low_freq_factor = values.real("low_freq_factor", scaling.low_freq_factor);
  scaling.high_freq_factor = values.real("high_freq_factor", scaling.high_freq_factor);
  scaling.original_max_position_embeddings = values.number(
      "original_max_position_embeddings", scaling.original_max_position_embeddings, kMostPositions);
}

std::vector<std::string> unsupported_in_llama(const nlohmann::json& config,
                                              const std::string& rope_type) {
  std::vector<std::string> found =
      differences_from_fixed(config, {{"hidden_act", "silu"},
                                      {"attention_bias", false},
                                      {"mlp_bias", false},
                                      {"use_sliding_window", false},
                                      {"is_encoder_decoder", false},
                                      {"quantization_config", nullptr}});
  if (rope_type != "default" && rope_type != "linear" && rope_type != "llama3") {
    found.push_back(
        fmt::format("rope_scaling.rope_type is {}, not default, linear or llama3", rope_type));
  }
  for (const char* place : {"", "/rope_parameters", "/rope_scaling"}) {  // transformers 4, 5, 4
    const nlohmann::json::json_pointer key(std::string(place) + "/partial_rotary_factor");
    if (const auto share = config.value(key, nlohmann::json()); !share.is_null() && share != 1.0)
      found.emplace_back("partial_rotary_factor is not 1");
  }
  for (const auto& type : config.value("layer_types", nlohmann::json::array())) {
    if (type == "full_attention") continue;
    found.push_back(fmt::format("layer_types has {}, not only \"full_attention\"", type.dump()));
    break;
  }
  return found;
}

PretrainedLlama llama_of_folder(const std::string& folder) {
  const std::string file = folder + "/config.json";
  const nlohmann::json config = parse_pretrained_config(file);
  const PretrainedValues values(config, file);
  const std::string type = values.text("model_type", "");
  const auto types = llama_model_types();
  if (std::find(types.begin(), types.end(), type) == types.end()) {
    throw UserError(
        fmt::format("{}: model_type is '{}', not llama, qwen2 or qwen3; give the folder "
                    "of such a model",
                    file, type));
  }
  PretrainedLlama result;
  read_llama_sizes(result.shape, values, type);
  read_rope(result.shape, config, file);
  result.shape.norm_eps = values.real("rms_norm_eps", 1e-6);
  result.shape.tie_weights = values.flag("tie_word_embeddings", false);
  result.shape.qkv_bias = type == kQwen2;
  result.shape.qk_norm = type == kQwen3;
  result.positions =
      values.number("max_position_embeddings", type == kLlamaType ? 2048 : 32768, kMostPositions);
  result.unsupported = unsupported_in_llama(config, result.shape.rope_scaling.rope_type);
  return result;
}

void take_value(const nlohmann::json& from, int64_t& value) { value = from; }
void take_value(const nlohmann::json& from, double& value) { value = from; }
void take_value(const nlohmann::json& from, bool& value) { value = from; }
void take_value(const nlohmann::json& from, RopeScaling& value) {
  value = {from.at("rope_type"), from.at("factor"), from.at("low_freq_factor"),
           from.at("high_freq_factor"), from.at("original_max_position_embeddings")};
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
        each_shape_value(
            [&](const char* name, auto member) { take_value(llama.at(name), shape.*member); });
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

/// Class and model_type.
std::pair<const char*, std::string_view> huggingface_class(const LlamaShape& shape) {
  if (shape.qk_norm && shape.qkv_bias) {
    throw UserError(
        "export: transformers has no model with both llama_config.qk_norm and qkv_bias; use "
        "--format torch or safetensors");
  }
  if (shape.qk_norm) return {"Qwen3ForCausalLM", kQwen3};
  if (shape.qkv_bias) return {"Qwen2ForCausalLM", kQwen2};
  return {"LlamaForCausalLM", kLlamaType};
}

nlohmann::ordered_json rope_scaling_json(const RopeScaling& scaling) {
  if (scaling.rope_type == "default") return nullptr;
  nlohmann::ordered_json json = {{"rope_type", scaling.rope_type}, {"factor", scaling.factor}};
  if (scaling.rope_type != "llama3") return json;
  json["low_freq_factor"] = scaling.low_freq_factor;
  json["high_freq_factor"] = scaling.high_freq_factor;
  json["original_max_position_embeddings"] = scaling.original_max_position_embeddings;
  return json;
}

}  // namespace

std::vector<std::string_view> llama_model_types() { return {kLlamaType, kQwen2, kQwen3}; }

PretrainedLlama read_pretrained_llama(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) ? llama_of_snapshot(path)
                                                         : llama_of_folder(path);
}

std::string llama_config_json(const LlamaShape& shape, int64_t vocab_size, int64_t positions,
                              std::optional<int32_t> end_of_text) {
  using OrderedJson = nlohmann::ordered_json;
  const auto [class_name, type] = huggingface_class(shape);
  const OrderedJson end_token = end_of_text ? OrderedJson(*end_of_text) : OrderedJson(nullptr);
  const OrderedJson text = {{"architectures", {class_name}},
                            {"model_type", type},
                            {"vocab_size", vocab_size},
                            {"max_position_embeddings", positions},
                            {"hidden_size", shape.n_embd},
                            {"num_hidden_layers", shape.n_layer},
                            {"num_attention_heads", shape.n_head},
                            {"num_key_value_heads", shape.n_kv_head},
                            {"head_dim", shape.head_dim},
                            {"intermediate_size", shape.intermediate},
                            {"hidden_act", "silu"},
                            {"rms_norm_eps", shape.norm_eps},
                            {"rope_theta", shape.rope_theta},
                            {"rope_scaling", rope_scaling_json(shape.rope_scaling)},
                            {"attention_bias", false},
                            {"attention_dropout", 0.0},
                            {"initializer_range", 0.02},
                            {"tie_word_embeddings", shape.tie_weights},
                            {"bos_token_id", end_token},
                            {"eos_token_id", end_token},
                            {"torch_dtype", "float32"}};
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
    "transformers turns a pytorch_model.bin into one"};

}  // namespace ddp::train
