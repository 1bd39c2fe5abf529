#include "trainer/interop/peft_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "trainer/interop/carried_files.h"
#include "trainer/interop/weight_files.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/lora.h"
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

OrderedJson adapter_config(const ExportedModel& model, const CausalArchitecture& architecture) {
  const LoraConfig& lora = model.config.lora;
  const auto layout = architecture.layout(model.config, model.vocab_size);
  const auto all = adaptable_layers(layout);
  const auto adapted = adapted_layers(lora.targets, all);
  const bool conv1d = architecture.huggingface_layout()->is_transposed(adapted.front() + ".weight");
  return {{"peft_type", "LORA"},
          {"task_type", "CAUSAL_LM"},
          {"base_model_name_or_path", architecture.pretrained(model.config)},
          {"r", lora.rank},
          {"lora_alpha", lora.alpha},
          {"lora_dropout", lora.dropout},
          {"target_modules", target_modules(adapted, all)},
          {"bias", "none"},
          {"fan_in_fan_out", conv1d},
          {"init_lora_weights", true},
          {"inference_mode", true},
          {"modules_to_save", nullptr}};
}

OrderedJson prompt_config(const ExportedModel& model, const CausalArchitecture& architecture) {
  const PromptConfig& prompt = model.config.prompt_tuning;
  const std::string base = architecture.pretrained(model.config);
  const bool text = !prompt.text.empty();
  return {{"peft_type", "PROMPT_TUNING"},
          {"task_type", "CAUSAL_LM"},
          {"base_model_name_or_path", base},
          {"num_virtual_tokens", prompt.tokens},
          {"prompt_tuning_init", text ? "TEXT" : "SAMPLE_VOCAB"},
          {"prompt_tuning_init_text", text ? OrderedJson(prompt.text) : OrderedJson(nullptr)},
          {"tokenizer_name_or_path", text ? OrderedJson(base) : OrderedJson(nullptr)},
          {"token_dim", model.weights.front().tensor.size(1)},
          {"num_transformer_submodules", 1},
          {"inference_mode", true}};
}

/// Its layers have none of `parts`.
void check_is_adapted_whole(const ExportedModel& model, const CausalArchitecture& architecture) {
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
          "layers; export with --merge",
          weight.name, layer.theirs, layer.model_type));
    }
  }
}

}  // namespace

std::vector<std::string> export_peft(const ExportedModel& model, const Tokenizer& tokenizer,
                                     const std::string& folder) {
  const CausalArchitecture& architecture = causal_architecture(model.config);
  const bool prompt = model.config.prompt_tuning.enabled();
  if (!prompt) check_is_adapted_whole(model, architecture);
  std::vector<NamedTensor> weights = model.weights;
  for (NamedTensor& weight : weights) {
    if (!prompt) weight.name = "base_model.model." + weight.name;
  }
  write_safetensors(folder + "/adapter_model.safetensors", weights, model.dtype);
  const auto config =
      prompt ? prompt_config(model, architecture) : adapter_config(model, architecture);
  write_text(folder + "/adapter_config.json", config.dump(2) + "\n");
  std::vector<std::string> names = {"adapter_model.safetensors", "adapter_config.json"};
  if (!model.chat) return names;
  for (const auto& [name, text] : with_base_tokenizer(
           tokenizer_files(tokenizer, model.config.data.block_size, model.chat), model)) {
    write_text(folder + "/" + name, text);
    names.push_back(name);
  }
  return names;
}

}  // namespace ddp::train
