#include "trainer/interop/export_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "trainer/config/add_tokens.h"
#include "trainer/interop/pretrained_weights.h"
#include "trainer/interop/weight_files.h"
#include "trainer/model/bert_family.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/lora.h"
#include "trainer/model/prompt_tuning.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string last_part(const std::string& layer) { return layer.substr(layer.rfind('.') + 1); }

/// What peft matches by the ends of names: short ones where they mean the same layers.
std::vector<std::string> target_modules(const std::vector<std::string>& adapted,
                                        const std::vector<std::string>& all) {
  std::set<std::string> short_names;
  for (const std::string& layer : adapted) short_names.insert(last_part(layer));
  const auto matched = std::count_if(all.begin(), all.end(), [&](const std::string& layer) {
    return short_names.contains(last_part(layer));
  });
  if (static_cast<std::size_t>(matched) != adapted.size()) return adapted;
  return {short_names.begin(), short_names.end()};
}

/// All layers that a short name could mean for peft, the heads included.
std::vector<std::string> layers_of(const Config& config,
                                   const std::vector<ParameterShape>& shapes) {
  constexpr std::string_view kWeight = ".weight";
  std::vector<std::string> layers = target_layers(config, shapes);
  for (const ParameterShape& each : shapes) {
    const std::string layer = each.name.substr(0, each.name.size() - kWeight.size());
    if (each.sizes.size() == 2 && std::find(layers.begin(), layers.end(), layer) == layers.end())
      layers.push_back(layer);
  }
  return layers;
}

OrderedJson task_type(TaskKind task) {
  if (task == TaskKind::kCausalLm) return "CAUSAL_LM";
  return task == TaskKind::kTextClassification ? OrderedJson("SEQ_CLS") : OrderedJson(nullptr);
}

OrderedJson modules_to_save(const ExportedModel& model) {
  return model.labels.empty() ? OrderedJson(nullptr)
                              : OrderedJson(classifier_modules(model.config.bert.family));
}

/// Tables with rows of new tokens, which are their last: {"embed_tokens": [50, 51]}.
OrderedJson trainable_token_indices(const ExportedModel& model) {
  OrderedJson tables = nullptr;
  for (const NamedTensor& weight : model.weights) {
    if (!weight.name.ends_with(kRowsOfTokens)) continue;
    OrderedJson& ids = tables[last_part(weight.name.substr(0, weight.name.rfind('.')))];
    for (int64_t id = model.vocab_size - weight.tensor.size(0); id < model.vocab_size; ++id)
      ids.push_back(id);
  }
  return tables;
}

std::string name_in_peft(const std::string& own, bool prompt) {
  if (own == kPromptName) return own;
  const auto last_dot = own.rfind('.');
  return fmt::format("{}{}{}{}", prompt ? "base_model." : "base_model.model.",
                     own.substr(0, last_dot), own.ends_with(kRowsOfTokens) ? ".token_adapter" : "",
                     own.substr(last_dot));
}

OrderedJson adapter_config(const ExportedModel& model) {
  const LoraConfig& lora = model.config.lora;
  const auto shapes =
      shapes_below(model.config, model.vocab_size, static_cast<int64_t>(model.labels.size()));
  const auto adapted = adapted_layers(lora.targets, target_layers(model.config, shapes));
  const bool causal = model.config.task == TaskKind::kCausalLm;
  const bool conv1d =
      causal && std::any_of(adapted.begin(), adapted.end(), [&](const std::string& layer) {
        return causal_architecture(model.config)
            .huggingface_layout()
            ->is_transposed(layer + ".weight");
      });
  OrderedJson config = {
      {"peft_type", "LORA"},
      {"task_type", task_type(model.config.task)},
      {"base_model_name_or_path", model_below(model.config).path},
      {"r", lora.rank},
      {"lora_alpha", lora.alpha},
      {"use_rslora", lora.use_rslora},
      {"lora_dropout", lora.dropout},
      {"target_modules", target_modules(adapted, layers_of(model.config, shapes))},
      {"bias", "none"},
      {"fan_in_fan_out", conv1d},
      {"init_lora_weights", true},
      {"inference_mode", true},
      {"modules_to_save", modules_to_save(model)}};
  // Not null: peft before 0.15 does not know it.
  if (auto rows = trainable_token_indices(model); !rows.is_null())
    config["trainable_token_indices"] = std::move(rows);
  return config;
}

OrderedJson prompt_config(const ExportedModel& model) {
  const PromptConfig& prompt = model.config.prompt_tuning;
  const std::string base = model_below(model.config).path;
  const bool text = !prompt.text.empty();
  OrderedJson config = {
      {"peft_type", "PROMPT_TUNING"},
      {"task_type", task_type(model.config.task)},
      {"base_model_name_or_path", base},
      {"num_virtual_tokens", prompt.tokens},
      {"prompt_tuning_init", text ? "TEXT" : "SAMPLE_VOCAB"},
      {"prompt_tuning_init_text", text ? OrderedJson(prompt.text) : OrderedJson(nullptr)},
      {"tokenizer_name_or_path", text ? OrderedJson(base) : OrderedJson(nullptr)},
      {"token_dim", model.weights.front().tensor.size(1)},
      {"num_transformer_submodules", 1},
      {"inference_mode", true},
      {"modules_to_save", modules_to_save(model)}};
  if (!model.labels.empty())  // which peft does not find in a DistilBERT's config.json
    config["num_attention_heads"] = model.config.bert.n_head;
  return config;
}

/// How many rows of no token the tables of the base's folder end in.
int64_t padding_of_tables(const ExportedModel& model) {
  std::error_code ignored;
  if (!model.base || !std::filesystem::is_directory(model_below(model.config).path, ignored))
    return 0;
  const auto config = model.base->texts.find("config.json");
  if (config == model.base->texts.end()) return 0;
  const auto json = nlohmann::json::parse(config->second);
  const auto of_text = json.find("text_config");  // Gemma 3
  const auto& sizes = of_text != json.end() && of_text->is_object() ? *of_text : json;
  const auto rows = sizes.find("vocab_size");
  const bool padded = rows != sizes.end() && rows->is_number_integer() &&
                      is_padded_table(rows->get<int64_t>(), model.vocab_size);
  return padded ? rows->get<int64_t>() - model.vocab_size : 0;
}

torch::Tensor padded(const NamedTensor& weight, int64_t padding) {
  if (weight.name.ends_with(".lora_embedding_A"))
    return torch::constant_pad_nd(weight.tensor.detach(), {0, padding});
  if (weight.name.ends_with("lm_head.lora_B.weight"))
    return torch::constant_pad_nd(weight.tensor.detach(), {0, 0, 0, padding});
  return weight.tensor;
}

/// Its layers have none of `parts`.
void check_is_adapted_whole(const ExportedModel& model) {
  const CausalArchitecture& architecture = causal_architecture(model.config);
  const auto config = nlohmann::json::parse(
      architecture.huggingface_config(model.config, model.vocab_size, std::nullopt));
  for (const FusedLayers& layer : architecture.huggingface_layout()->fused) {
    if (config["model_type"] != layer.model_type) continue;
    for (const NamedTensor& weight : model.weights) {
      const auto is_in = [&](const std::string& part) {
        return weight.name.find("." + part + ".") != std::string::npos;
      };
      if (std::none_of(layer.parts.begin(), layer.parts.end(), is_in)) continue;
      throw UserError(fmt::format(
          "export: {} adapts a part of {}, one layer in transformers' {}, and peft adapts whole "
          "layers; export with --merge, or train with lora.targets=[{}]",
          weight.name, layer.theirs, layer.model_type, layer.theirs));
    }
  }
}

}  // namespace

std::vector<std::string> export_peft(const ExportedModel& model, const Tokenizer& tokenizer,
                                     const std::string& folder) {
  const bool prompt = model.config.prompt_tuning.enabled();
  if (!prompt && model.config.task == TaskKind::kCausalLm) check_is_adapted_whole(model);
  std::vector<NamedTensor> weights = model.weights;
  const int64_t padding = padding_of_tables(model);
  for (NamedTensor& weight : weights) {
    weight.tensor = padded(weight, padding);
    weight.name = name_in_peft(weight.name, prompt);
  }
  write_safetensors(folder + "/adapter_model.safetensors", weights, model.dtype);
  const auto config = prompt ? prompt_config(model) : adapter_config(model);
  write_text(folder + "/adapter_config.json", config.dump(2) + "\n");
  std::vector<std::string> names = {"adapter_model.safetensors", "adapter_config.json"};
  if (!model.chat && add_tokens(model.config).empty()) return names;
  for (const auto& [name, text] : with_base_tokenizer(
           tokenizer_files(tokenizer, model.config.data.block_size, model.chat, /*of_bert=*/false),
           model)) {
    write_text(folder + "/" + name, text);
    names.push_back(name);
  }
  return names;
}

}  // namespace ddp::train
