#include "trainer/interop/export_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "trainer/interop/bitsandbytes_files.h"
#include "trainer/interop/export_parts.h"
#include "trainer/interop/weight_files.h"
#include "trainer/model/bert_family.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/lora.h"
#include "trainer/runtime/error.h"
#include "trainer/tokenizer/wordpiece/wordpiece_tokenizer.h"

namespace ddp::train {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson or_null(std::optional<int32_t> token) {
  return token ? OrderedJson(*token) : OrderedJson(nullptr);
}

/// Sizes as DistilBertConfig calls them.
OrderedJson distilbert_keys(const BertConfig& bert) {
  return {{"n_layers", bert.n_layer},
          {"n_heads", bert.n_head},
          {"dim", bert.n_embd},
          {"hidden_dim", bert.intermediate},
          {"activation", "gelu"},
          {"dropout", bert.hidden_pdrop},
          {"attention_dropout", bert.attn_pdrop},
          {"seq_classif_dropout", bert.hidden_pdrop},
          {"sinusoidal_pos_embds", false}};
}

OrderedJson bert_keys(const BertConfig& bert) {
  return {{"num_hidden_layers", bert.n_layer},
          {"num_attention_heads", bert.n_head},
          {"hidden_size", bert.n_embd},
          {"intermediate_size", bert.intermediate},
          {"hidden_act", "gelu"},
          {"hidden_dropout_prob", bert.hidden_pdrop},
          {"attention_probs_dropout_prob", bert.attn_pdrop},
          {"type_vocab_size", bert.type_vocab_size},
          {"layer_norm_eps", bert.layer_norm_eps},
          {"position_embedding_type", "absolute"}};
}

OrderedJson bert_config(const ExportedModel& model, const Tokenizer& tokenizer) {
  const BertConfig& bert = model.config.bert;
  const BertTraits& traits = traits_of(bert.family);
  const BertTokenNames& names = token_names_of(tokenizer);
  const std::string head = model.labels.empty() ? "ForMaskedLM" : "ForSequenceClassification";
  OrderedJson config = {
      {"architectures", {traits.model_class + head}},
      {"model_type", traits.base},
      {"vocab_size", model.vocab_size},
      {"max_position_embeddings", model.config.data.block_size + bert.position_offset},
      {"initializer_range", 0.02},
      {"tie_word_embeddings", true},
      {"pad_token_id", or_null(tokenizer.token_of(names.pad))},
      {"torch_dtype", "float32"}};
  const bool distilled = bert.family == BertFamily::kDistilbert;
  config.update(distilled ? distilbert_keys(bert) : bert_keys(bert));
  if (bert.family == BertFamily::kRoberta) {
    config["bos_token_id"] = or_null(tokenizer.token_of(names.first));
    config["eos_token_id"] = or_null(tokenizer.token_of(names.last));
  }
  if (model.labels.empty()) return config;
  for (std::size_t i = 0; i < model.labels.size(); ++i) {
    config["id2label"][std::to_string(i)] = model.labels[i];
    config["label2id"][model.labels[i]] = i;
  }
  config["problem_type"] = std::string(name_of(bert.problem_type));
  return config;
}

std::vector<NamedTensor> in_their_layout(std::vector<NamedTensor> weights,
                                         const PretrainedLayout& layout,
                                         const std::string& model_type) {
  for (NamedTensor& weight : weights) {
    if (layout.is_transposed(weight.name)) weight.tensor = weight.tensor.detach().t();
  }
  std::vector<NamedTensor> theirs;
  for (const FileWeight& weight : fused_weights(weights, layout, model_type))
    theirs.push_back({weight.name, weight.whole()});
  return theirs;
}

/// A special token that the model's chat template names.
std::optional<int32_t> special_token(const ExportedModel& model, const Tokenizer& tokenizer,
                                     const char* name) {
  const auto named = model.chat->special.find(name);
  return named == model.chat->special.end() ? std::nullopt : tokenizer.token_of(named->second);
}

/// What ends an answer, then what ends a text.
OrderedJson end_tokens(const ExportedModel& model, const Tokenizer& tokenizer) {
  std::vector<int32_t> ends;
  const auto add = [&ends](std::optional<int32_t> token) {
    if (token && std::find(ends.begin(), ends.end(), *token) == ends.end()) ends.push_back(*token);
  };
  if (model.chat) {
    add(model.chat->end_of_turn);
    add(special_token(model, tokenizer, "eos_token"));
  }
  add(tokenizer.end_of_text());
  if (ends.empty()) return nullptr;
  return ends.size() == 1 ? OrderedJson(ends.front()) : OrderedJson(ends);
}

OrderedJson generation_config(const ExportedModel& model, const Tokenizer& tokenizer) {
  const OrderedJson ends = end_tokens(model, tokenizer);
  if (!model.chat) return {{"bos_token_id", ends}, {"eos_token_id", ends}};
  return {{"bos_token_id", or_null(special_token(model, tokenizer, "bos_token"))},
          {"eos_token_id", ends},
          {"pad_token_id", or_null(special_token(model, tokenizer, "pad_token"))}};
}

/// config.json, and what generation needs.
TextFiles causal_files(const ExportedModel& model, const CausalArchitecture& architecture,
                       const Tokenizer& tokenizer) {
  const auto end = tokenizer.end_of_text();
  return {{"config.json", architecture.huggingface_config(model.config, model.vocab_size, end)},
          {"generation_config.json", generation_config(model, tokenizer).dump(2) + "\n"}};
}

/// The files that describe the model and its tokenizer in a folder for transformers.
TextFiles text_files(const ExportedModel& model, const Tokenizer& tokenizer) {
  TextFiles own;
  if (model.config.task == TaskKind::kCausalLm) {
    const CausalArchitecture& architecture = causal_architecture(model.config);
    if (architecture.model_types().empty()) {
      throw UserError(fmt::format(
          "export: transformers has no model like '{}'; use --format torch or safetensors",
          architecture.name()));
    }
    own = causal_files(model, architecture, tokenizer);
  } else {
    own = {{"config.json", bert_config(model, tokenizer).dump(2) + "\n"}};
  }
  TextFiles files = with_base_config(std::move(own), model);
  files.merge(with_base_tokenizer(tokenizer_files(tokenizer, model.config.data.block_size,
                                                  model.chat, !trains_causal_lm(model.config.task)),
                                  model));
  return files;
}

/// transformers 5 writes "dtype", and reads the older name as well.
std::string with_dtype(const std::string& text, torch::ScalarType dtype) {
  OrderedJson config = OrderedJson::parse(text);
  const char* const name = python_dtype(dtype);
  const bool of_transformers_5 = config.contains("dtype");
  config[of_transformers_5 ? "dtype" : "torch_dtype"] = name;
  if (of_transformers_5) config.erase("torch_dtype");
  return config.dump(2) + "\n";
}

/// Names in the file of what bitsandbytes holds in codes, and of what it leaves alone.
struct InCodes {
  std::vector<std::string> weights;
  std::vector<std::string> skipped;  ///< Modules; empty: an output layer, as by default.
};

/// A BERT's heads are skipped: which of them are by default depends on transformers' version.
InCodes bert_in_codes(const ExportedModel& model) {
  InCodes codes;
  const std::string encoder = std::string(traits_of(model.config.bert.family).base) + ".";
  for (const ParameterShape& each :
       shapes_below(model.config, model.vocab_size, static_cast<int64_t>(model.labels.size()))) {
    const std::string head = each.name.substr(0, each.name.find('.'));
    if (!each.name.starts_with(encoder)) {
      if (codes.skipped.empty() || codes.skipped.back() != head) codes.skipped.push_back(head);
    } else if (each.sizes.size() == 2 && each.role != ParameterRole::kEmbedding) {
      codes.weights.push_back(each.name);
    }
  }
  return codes;
}

InCodes in_codes(const ExportedModel& model, const std::string& model_type) {
  if (model.config.task != TaskKind::kCausalLm) return bert_in_codes(model);
  InCodes codes;
  const CausalArchitecture& architecture = causal_architecture(model.config);
  const auto layers = adaptable_layers(architecture.layout(model.config, model.vocab_size));
  if (std::any_of(layers.begin(), layers.end(), is_of_expert))
    throw UserError(
        "--quantize nf4: bitsandbytes does not load experts in 4 bits; leave it out, or use "
        "quantize.base in a run from the exported folder");
  for (const std::string& layer : layers)
    codes.weights.push_back(
        file_name(layer + ".weight", *architecture.huggingface_layout(), model_type));
  return codes;
}

void write_nf4(const ExportedModel& model, const std::string& folder,
               std::vector<NamedTensor> weights, TextFiles& files) {
  OrderedJson config = OrderedJson::parse(files["config.json"]);
  const auto [quantized, skipped] = in_codes(model, config["model_type"]);
  const bool causal = model.config.task == TaskKind::kCausalLm;
  for (NamedTensor& weight : weights) {  // [out, in], of a Conv1D too
    if (causal && std::find(quantized.begin(), quantized.end(), weight.name) != quantized.end() &&
        causal_architecture(model.config).huggingface_layout()->is_transposed(weight.name))
      weight.tensor = weight.tensor.t().contiguous();
  }
  config["quantization_config"] = {{"quant_method", "bitsandbytes"},
                                   {"load_in_4bit", true},
                                   {"load_in_8bit", false},
                                   {"bnb_4bit_quant_type", "nf4"},
                                   {"bnb_4bit_use_double_quant", true},
                                   {"bnb_4bit_quant_storage", "uint8"},
                                   {"bnb_4bit_compute_dtype", python_dtype(model.dtype)}};
  if (!skipped.empty()) config["quantization_config"]["llm_int8_skip_modules"] = skipped;
  files["config.json"] = config.dump(2) + "\n";
  write_nf4_safetensors(folder + "/model.safetensors", std::move(weights), model.dtype, quantized);
}

std::vector<std::string> export_huggingface(const ExportedModel& model, const Tokenizer& tokenizer,
                                            const std::string& folder) {
  std::vector<std::string> names = {"model.safetensors"};
  TextFiles files = text_files(model, tokenizer);
  std::vector<NamedTensor> weights = model.weights;
  if (model.config.task == TaskKind::kCausalLm)
    weights =
        in_their_layout(std::move(weights), *causal_architecture(model.config).huggingface_layout(),
                        OrderedJson::parse(files["config.json"])["model_type"]);
  files["config.json"] = with_dtype(files["config.json"], model.dtype);
  if (model.to_nf4)
    write_nf4(model, folder, std::move(weights), files);
  else
    write_safetensors(folder + "/model.safetensors", weights, model.dtype);
  for (const auto& [name, text] : files) {
    write_text(folder + "/" + name, text);
    names.push_back(name);
  }
  return names;
}

}  // namespace

std::vector<std::string> export_model(const ExportedModel& model, const Tokenizer& tokenizer,
                                      ExportFormat format, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw RunError(fmt::format("{}: cannot be created: {}", folder, error.message()));
  switch (format) {
    case ExportFormat::kHuggingFace:
      return export_huggingface(model, tokenizer, folder);
    case ExportFormat::kTorch:
      write_torch_file(folder + "/model.pt", in_dtype(model.weights, model.dtype));
      return {"model.pt"};
    case ExportFormat::kSafetensors:
      write_safetensors(folder + "/model.safetensors", model.weights, model.dtype);
      return {"model.safetensors"};
    case ExportFormat::kPeft:
      return export_peft(model, tokenizer, folder);
    case ExportFormat::kGguf:
      return export_gguf(model, tokenizer, text_files(model, tokenizer), folder);
  }
  return {};
}

}  // namespace ddp::train
