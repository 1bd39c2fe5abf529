#include "trainer/model/lora.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "trainer/model/bert_family.h"
#include "trainer/model/cost/bert_cost.h"
#include "trainer/model/cost/tensor_cost.h"
#include "trainer/model/load/peft_settings.h"
#include "trainer/model/ops/weight_codec.h"
#include "trainer/model/prompt_tuning.h"

namespace ddp::train {
namespace {

constexpr std::string_view kWeight = ".weight";

/// A router of experts: a few rows, of which a small error moves tokens to other experts.
bool is_router(const std::string& name) { return name.ends_with(".gate.weight"); }

bool is_adaptable(const ParameterShape& p) {
  return p.role == ParameterRole::kHidden && p.sizes.size() == 2 && p.name.ends_with(kWeight) &&
         !is_router(p.name);
}

/// `pattern` may stand for the whole name, or for its end after any dot.
bool matches_layer(const std::string& pattern, const std::string& layer) {
  for (std::size_t dot = 0; dot != std::string::npos; dot = layer.find('.', dot + 1)) {
    const char* const end = layer.c_str() + (dot == 0 ? 0 : dot + 1);
    if (::fnmatch(pattern.c_str(), end, 0) == 0) return true;
  }
  return false;
}

bool matches_one(const std::vector<std::string>& patterns, const std::string& layer) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches_layer(pattern, layer); });
}

/// The last parts of the layers' names, each once.
std::vector<std::string> short_names(const std::vector<std::string>& layers) {
  std::vector<std::string> names;
  for (const std::string& layer : layers) {
    const std::string name = layer.substr(layer.rfind('.') + 1);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

void check_targets(const Config& config, const Given& given) {
  auto layers = adaptable_layers(shapes_below(config, 1));
  std::erase_if(layers, is_of_expert);
  for (const std::string& pattern : config.lora.targets) {
    if (std::any_of(layers.begin(), layers.end(),
                    [&](const std::string& layer) { return matches_layer(pattern, layer); }))
      continue;
    given.refuse("lora.targets",
                 fmt::format("'{}' matches no linear layer; those of this model end in {}, and "
                             "whole names look like {}",
                             pattern, fmt::join(short_names(layers), ", "), layers.back()));
  }
}

/// As in peft.
std::vector<std::string> default_targets(const Config& config) {
  if (trains_causal_lm(config.task)) return causal_architecture(config).lora_targets();
  const BertTraits& traits = traits_of(config.bert.family);
  const std::string query = traits.query, value = traits.value;
  return {query.substr(query.rfind('.') + 1), value.substr(value.rfind('.') + 1)};
}

void check_blocks(const Config& config, const Given& given) {
  if (config.quantize.base != BaseFormat::kNf4) return;
  const auto shapes = shapes_below(config, 1);
  const auto divided = [](const ParameterShape& p) {
    return !is_adaptable(p) || p.sizes[1] % kNf4Block == 0;
  };
  const auto wrong = std::find_if_not(shapes.begin(), shapes.end(), divided);
  if (wrong == shapes.end()) return;
  given.refuse("quantize.base",
               fmt::format("nf4 divides rows into blocks of {}, and {} has rows of "
                           "{}; use int8",
                           kNf4Block, wrong->name, wrong->sizes[1]));
}

/// A configuration that a run has written names every key, with its default.
void check_no_adapters(const Config& config, const Given& given) {
  const LoraConfig& lora = config.lora;
  const LoraConfig none;
  const std::pair<const char*, bool> keys[] = {{"lora.alpha", lora.alpha != none.alpha},
                                               {"lora.dropout", lora.dropout != none.dropout},
                                               {"lora.use_rslora", lora.use_rslora},
                                               {"lora.targets", !lora.targets.empty()}};
  for (const auto& [key, differs] : keys) {
    if (differs) given.refuse(key, "has no effect without lora.rank; set it, e.g. to 8");
  }
  if (!config.quantize.enabled() || config.prompt_tuning.enabled()) return;
  given.refuse("quantize.base",
               "weights in 4 or 8 bits are not trained, only adapters next to them; set lora.rank, "
               "e.g. to 16, or remove it");
}

}  // namespace

ModelBelow model_below(const Config& config) {
  if (!trains_causal_lm(config.task))
    return {config.bert.init_from, "bert_config.init_from",
            fmt::format("bert_config.family={}", name_of(config.bert.family))};
  const CausalArchitecture& architecture = causal_architecture(config);
  const PretrainedLayout* const layout = architecture.huggingface_layout();
  return {architecture.pretrained(config), layout == nullptr ? "" : layout->key,
          fmt::format("model={}", architecture.name())};
}

void set_model_below(Config& config, const std::string& path) {
  if (trains_causal_lm(config.task))
    causal_architecture(config).start_from(config, path);
  else
    config.bert.init_from = path;
}

std::vector<ParameterShape> shapes_below(const Config& config, int64_t vocab_size,
                                         int64_t classes) {
  if (trains_causal_lm(config.task))
    return shapes_of(causal_architecture(config).layout(config, vocab_size));
  return bert_parameter_shapes(config.bert, {vocab_size, config.data.block_size, classes});
}

void complete_lora(Config& config, const Given& given) {
  LoraConfig& lora = config.lora;
  if (!lora.init_from.empty()) {
    if (config.prompt_tuning.enabled())
      given.refuse("lora.init_from", "conflicts with prompt_tuning.tokens; keep one");
    follow_peft_settings(lora, given);
  }
  if (!lora.enabled()) check_no_adapters(config, given);
  check_blocks(config, given);
  if (!lora.enabled()) return;
  const auto defaults = default_targets(config);
  const ModelBelow below = model_below(config);
  if (defaults.empty()) {
    given.refuse("lora.rank", below.described + " has no layers that take adapters; remove it");
  }
  if (below.path.empty()) {
    given.refuse("lora.rank",
                 fmt::format("adapters need a pretrained model; set {} to its folder or snapshot",
                             below.key));
  }
  if (lora.targets.empty()) lora.targets = defaults;
  check_targets(config, given);
}

std::vector<std::string> adaptable_layers(const std::vector<ParameterShape>& parameters) {
  std::vector<std::string> layers;
  for (const ParameterShape& p : parameters) {
    if (is_adaptable(p)) layers.push_back(p.name.substr(0, p.name.size() - kWeight.size()));
  }
  return layers;
}

std::vector<std::string> adaptable_layers(const WeightsLayout& layout) {
  return adaptable_layers(shapes_of(layout));
}

std::vector<std::string> adapted_layers(const std::vector<std::string>& targets,
                                        std::vector<std::string> adaptable) {
  std::erase_if(adaptable, [&](const std::string& layer) {
    return is_of_expert(layer) || !matches_one(targets, layer);
  });
  return adaptable;
}

std::vector<ParameterShape> adapter_shapes(const Config& config,
                                           const std::vector<ParameterShape>& parameters) {
  const LoraConfig& lora = config.lora;
  if (config.prompt_tuning.enabled()) {
    const int64_t width = parameters.front().sizes.back();  // the token embedding's
    return {{kPromptName, {config.prompt_tuning.tokens, width}, ParameterRole::kEmbedding}};
  }
  std::vector<ParameterShape> shapes;
  for (const std::string& layer : adapted_layers(lora.targets, adaptable_layers(parameters))) {
    const auto of_layer =
        std::find_if(parameters.begin(), parameters.end(), [&](const ParameterShape& p) {
          return p.name.size() == layer.size() + kWeight.size() && p.name.starts_with(layer);
        });
    shapes.push_back(
        {layer + ".lora_A.weight", {lora.rank, of_layer->sizes[1]}, ParameterRole::kHidden});
    shapes.push_back(
        {layer + ".lora_B.weight", {of_layer->sizes[0], lora.rank}, ParameterRole::kHidden});
  }
  std::copy_if(parameters.begin(), parameters.end(), std::back_inserter(shapes),
               [](const ParameterShape& p) { return is_of_classifier(p.name); });
  return shapes;
}

std::vector<ParameterShape> adapter_shapes(const Config& config, const WeightsLayout& layout) {
  return adapter_shapes(config, shapes_of(layout));
}

double flops_per_token_with_adapters(const Config& config, const CausalArchitecture& architecture,
                                     int64_t vocab_size) {
  constexpr double kGradient = 2.0, kTrained = 6.0;
  const auto layout = architecture.layout(config, vocab_size);
  double head = 0.0, hidden = 0.0;
  for (const WeightPlace& place : layout) {
    if (place.shape.size() != 2) continue;
    const double count = static_cast<double>(place.shape[0] * place.shape[1]) * place.share;
    if (place.split == Split::kVocabulary) head = count;  // the last one, or the tied table
    if (place.block >= 0) hidden += count;
  }
  const double frozen =
      architecture.flops_per_token(config, vocab_size) - kGradient * (head + hidden);
  if (config.prompt_tuning.enabled()) {
    return frozen * static_cast<double>(config.positions()) /
           static_cast<double>(config.data.block_size);
  }
  return frozen + kTrained * static_cast<double>(count_of(adapter_shapes(config, layout)));
}

double adapter_activation_bytes(const Config& config, const std::vector<ParameterShape>& parameters,
                                const ComputePlace& place) {
  if (!config.lora.enabled()) return 0.0;
  const double element = config.trainer.use_amp ? 2.0 : 4.0;
  const double dropped = config.lora.dropout > 0.0 ? element + (place.cuda ? 1.0 : element) : 0.0;
  double per_token = 0.0;
  for (const ParameterShape& matrix : adapter_shapes(config, parameters)) {
    if (!matrix.name.ends_with(".lora_A.weight")) continue;
    per_token += static_cast<double>(matrix.sizes[0]) * element +
                 static_cast<double>(matrix.sizes[1]) * dropped;
  }
  return per_token * static_cast<double>(config.trainer.batch_size * config.data.block_size);
}

int64_t quantized_bytes(const ParameterShape& weight, BaseFormat format) {
  constexpr int64_t kFloat = 4;
  if (format == BaseFormat::kNone || !is_adaptable(weight)) return 0;
  if (format == BaseFormat::kInt8) return weight.count() + kFloat * weight.sizes[0];
  const int64_t blocks = weight.count() / kNf4Block;
  return weight.count() / 2 + blocks + kFloat * ((blocks + kAbsmaxBlock - 1) / kAbsmaxBlock + 1);
}

bool is_of_expert(std::string_view layer) {
  return layer.find(".experts.") != std::string_view::npos;
}

bool is_of_adapter(std::string_view parameter) {
  return parameter.ends_with(".lora_A.weight") || parameter.ends_with(".lora_B.weight") ||
         parameter == kPromptName;
}

bool is_trained_with_adapters(std::string_view parameter) {
  return is_of_adapter(parameter) || is_of_classifier(parameter);
}

}  // namespace ddp::train
