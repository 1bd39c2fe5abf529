#include "trainer/model/lora.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "trainer/config/add_tokens.h"
#include "trainer/model/bert_family.h"
#include "trainer/model/cost/bert_cost.h"
#include "trainer/model/cost/tensor_cost.h"
#include "trainer/model/llama/llama_pretrained.h"
#include "trainer/model/llama/llama_types.h"
#include "trainer/model/load/peft_settings.h"
#include "trainer/model/ops/weight_codec.h"
#include "trainer/model/prompt_tuning.h"

namespace ddp::train {
namespace {

constexpr std::string_view kWeight = ".weight";

/// A router of experts: a few rows, of which a small error moves tokens to other experts.
bool is_router(const std::string& name) { return name.ends_with(".gate.weight"); }

constexpr const char* kLlamaModel = "llama";
constexpr const char* kHead = "lm_head";
constexpr const char* kTableA = ".lora_embedding_A";
constexpr const char* kTableB = ".lora_embedding_B";
constexpr const char* kBertTable = "word_embeddings";
constexpr const char* kTables[] = {"wte", "embed_tokens", kBertTable};

std::string_view last_part(std::string_view layer) { return layer.substr(layer.rfind('.') + 1); }

bool is_table(std::string_view layer) {
  return std::find(std::begin(kTables), std::end(kTables), last_part(layer)) != std::end(kTables);
}

std::string layer_of(const ParameterShape& weight) {
  return weight.name.substr(0, weight.name.size() - kWeight.size());
}

bool is_adaptable(const ParameterShape& p) {
  return p.role == ParameterRole::kHidden && p.sizes.size() == 2 && p.name.ends_with(kWeight) &&
         !is_router(p.name);
}

/// `pattern` may stand for the whole name, or for its end after any dot.
bool matches_layer(const std::string& pattern, const std::string& layer) {
  for (std::size_t dot = 0; dot != std::string::npos; dot = layer.find('.', dot + 1)) {
    const char* const end = layer.c_str() + (dot == 0 ? 0 : dot + 1);
    if (is_of_tokens(layer) ? pattern == end : ::fnmatch(pattern.c_str(), end, 0) == 0) return true;
  }
  return false;
}

bool matches_one(const std::vector<std::string>& patterns, const std::string& layer) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return matches_layer(pattern, layer); });
}

/// The layers that are one in transformers' files of the model.
std::vector<FusedLayers> fused_layers(const Config& config) {
  if (!trains_causal_lm(config.task) || config.model != kLlamaModel) return {};
  auto fused = kLlamaLayout.fused;
  const std::string_view type = family_of(llama_of(config)).model_type;
  std::erase_if(fused, [&](const FusedLayers& each) { return each.model_type != type; });
  return fused;
}

/// "model.layers.0.self_attn.q_proj" -> "model.layers.0.self_attn.qkv_proj"; "": it is not a part.
std::string whole_layer(const std::vector<FusedLayers>& fused, const std::string& layer) {
  const std::string_view last = last_part(layer);
  for (const FusedLayers& each : fused) {
    if (std::find(each.parts.begin(), each.parts.end(), last) != each.parts.end())
      return layer.substr(0, layer.size() - last.size()) + each.theirs;
  }
  return "";
}

/// The width of an adapter's input, and its outputs.
struct AdaptedSizes {
  int64_t in = 0, out = 0;
};

AdaptedSizes sizes_of(const Config& config, const std::string& layer,
                      const std::vector<ParameterShape>& parameters) {
  const auto fused = fused_layers(config);
  AdaptedSizes sizes;
  for (const ParameterShape& p : parameters) {
    if (!p.name.ends_with(kWeight) || p.sizes.size() != 2) continue;
    const std::string own = layer_of(p);
    if (own != layer && whole_layer(fused, own) != layer) continue;
    sizes = {p.sizes[1], sizes.out + p.sizes[0]};
  }
  if (sizes.out > 0) return sizes;
  const auto& table = parameters.front().sizes;  // of a tied output layer
  return {table[1], table[0]};
}

/// The last parts of the layers' names, each once.
std::vector<std::string> short_names(const std::vector<std::string>& layers) {
  std::vector<std::string> names;
  for (const std::string& layer : layers) {
    const std::string_view name = last_part(layer);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
  }
  return names;
}

void check_targets(const Config& config, const Given& given) {
  const auto layers = target_layers(config, shapes_below(config, 1));
  for (const std::string& pattern : config.lora.targets) {
    if (std::any_of(layers.begin(), layers.end(),
                    [&](const std::string& layer) { return matches_layer(pattern, layer); }))
      continue;
    given.refuse(
        "lora.targets",
        fmt::format("'{}' matches no layer that takes adapters; those of this model end "
                    "in {}, and whole names look like {}",
                    pattern, fmt::join(short_names(layers), ", "), layers[layers.size() / 2]));
  }
}

/// As in peft.
std::vector<std::string> default_targets(const Config& config) {
  if (trains_causal_lm(config.task)) {
    const auto fused = fused_layers(config);
    if (!fused.empty()) return {fused.front().theirs};
    return causal_architecture(config).lora_targets();
  }
  const BertTraits& traits = traits_of(config.bert.family);
  return {std::string(last_part(traits.query)), std::string(last_part(traits.value))};
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
               "weights in 4 or 8 bits are not trained, only adapters or virtual tokens next to "
               "them; set lora.rank, e.g. to 16, or prompt_tuning.tokens, or remove it");
}

void check_new_tokens(const Config& config, const Given& given) {
  if (add_tokens(config).empty()) return;
  if (config.prompt_tuning.enabled())
    given.refuse("data_config.add_tokens",
                 "prompt_tuning trains no rows of new tokens; use lora.rank, or train all weights "
                 "with them first, then start from that model without this key");
  const auto table = std::ranges::find_if(config.lora.targets, is_of_tokens);
  if (table != config.lora.targets.end())
    given.refuse("lora.targets",
                 fmt::format("{} has no adapter next to rows of data_config.add_tokens, which are "
                             "trained whole; keep one of them",
                             *table));
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
  return bert_parameter_shapes(config.bert, {vocab_size, config.positions(), classes});
}

void complete_lora(Config& config, const Given& given) {
  LoraConfig& lora = config.lora;
  if (!lora.init_from.empty()) {
    if (config.prompt_tuning.enabled())
      given.refuse("lora.init_from", "conflicts with prompt_tuning.tokens; keep one");
    follow_peft_settings(lora, given, config.task == TaskKind::kTextClassification);
  }
  check_new_tokens(config, given);
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
  if (given.has("lora.targets") && lora.targets.empty())
    given.refuse("lora.targets",
                 fmt::format("selects no layer; remove it for {}, or use all-linear",
                             lora.init_from.empty()
                                 ? fmt::format("the default, [{}]", fmt::join(defaults, ", "))
                                 : "those of lora.init_from"));
  if (lora.targets.empty()) lora.targets = defaults;
  check_targets(config, given);
}

std::vector<std::string> adaptable_layers(const std::vector<ParameterShape>& parameters) {
  std::vector<std::string> layers;
  for (const ParameterShape& p : parameters) {
    if (is_adaptable(p)) layers.push_back(layer_of(p));
  }
  return layers;
}

bool is_of_tokens(std::string_view layer) { return layer == kHead || is_table(layer); }

std::vector<std::string> target_layers(const Config& config,
                                       const std::vector<ParameterShape>& parameters) {
  auto layers = adaptable_layers(parameters);
  std::erase_if(layers, is_of_expert);
  const auto fused = fused_layers(config);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string whole = whole_layer(fused, layers[i]);
    const bool ends = i + 1 == layers.size() || whole_layer(fused, layers[i + 1]) != whole;
    if (!whole.empty() && ends) layers.insert(layers.begin() + static_cast<ptrdiff_t>(++i), whole);
  }
  const std::string table = layer_of(parameters.front());
  if (!is_table(table)) return layers;
  layers.insert(layers.begin(), table);
  if (last_part(table) != kBertTable) layers.emplace_back(kHead);
  return layers;
}

std::vector<std::string> adaptable_layers(const WeightsLayout& layout) {
  return adaptable_layers(shapes_of(layout));
}

std::vector<std::string> adapted_layers(const std::vector<std::string>& targets,
                                        std::vector<std::string> layers) {
  std::erase_if(layers, [&](const std::string& layer) {
    return is_of_expert(layer) || !matches_one(targets, layer);
  });
  std::erase_if(layers, [all = layers](const std::string& layer) {
    const std::string whole = whole_layer(kLlamaLayout.fused, layer);
    return !whole.empty() && std::find(all.begin(), all.end(), whole) != all.end();
  });
  return layers;
}

double adapter_scale(const LoraConfig& lora) {
  const auto rank = static_cast<double>(lora.rank);
  return lora.alpha / (lora.use_rslora ? std::sqrt(rank) : rank);
}

std::vector<ParameterShape> adapter_shapes(const Config& config,
                                           const std::vector<ParameterShape>& parameters) {
  const LoraConfig& lora = config.lora;
  std::vector<ParameterShape> shapes;
  if (config.prompt_tuning.enabled()) {
    const int64_t width = parameters.front().sizes.back();  // the token embedding's
    shapes.push_back(
        {kPromptName, {config.prompt_tuning.tokens, width}, ParameterRole::kEmbedding});
  }
  const auto add = [&](const std::string& matrix, int64_t rows, int64_t columns,
                       ParameterRole role) {
    shapes.push_back({matrix, {rows, columns}, role});
  };
  const auto add_rows = [&](const ParameterShape& table) {
    if (const int64_t count = std::ssize(add_tokens(config)); count > 0 && lora.enabled())
      add(fmt::format("{}.{}", layer_of(table), kRowsOfTokens), count, table.sizes[1], table.role);
  };
  add_rows(parameters.front());
  for (const std::string& layer : adapted_layers(lora.targets, target_layers(config, parameters))) {
    const auto [in, out] = sizes_of(config, layer, parameters);
    if (is_table(layer)) {
      add(layer + kTableA, lora.rank, out, ParameterRole::kEmbedding);
      add(layer + kTableB, in, lora.rank, ParameterRole::kEmbedding);
      continue;
    }
    add(layer + ".lora_A.weight", lora.rank, in, ParameterRole::kHidden);
    add(layer + ".lora_B.weight", out, lora.rank, ParameterRole::kHidden);
  }
  if (layer_of(parameters.back()) == kHead) add_rows(parameters.back());
  std::copy_if(parameters.begin(), parameters.end(), std::back_inserter(shapes),
               [](const ParameterShape& p) { return is_of_classifier(p.name); });
  return shapes;
}

std::vector<ParameterShape> adapter_shapes(const Config& config, const WeightsLayout& layout) {
  return adapter_shapes(config, shapes_of(layout));
}

double flops_per_token_with_adapters(const Config& config, const CausalArchitecture& architecture,
                                     int64_t vocab_size) {
  const auto layout = architecture.layout(config, vocab_size);
  double head = 0.0, hidden = 0.0;
  for (const WeightPlace& place : layout) {
    if (place.shape.size() != 2) continue;
    const double count = static_cast<double>(place.shape[0] * place.shape[1]) * place.share;
    if (place.split == Split::kVocabulary) head = count;  // the last one, or the tied table
    if (place.block >= 0) hidden += count;
  }
  const double all = architecture.flops_per_token(config, vocab_size) +
                     adapter_flops(config, shapes_of(layout), head + hidden);
  if (!config.prompt_tuning.enabled()) return all;
  return all * static_cast<double>(config.positions()) /
         static_cast<double>(config.data.block_size);
}

double adapter_flops(const Config& config, const std::vector<ParameterShape>& parameters,
                     double frozen) {
  constexpr double kGradient = 2.0, kTrained = 6.0;
  auto adapters = adapter_shapes(config, parameters);
  std::erase_if(adapters, [](const ParameterShape& p) {
    return !is_of_adapter(p.name) || p.name == kPromptName || p.name.ends_with(kTableA);
  });
  return kTrained * static_cast<double>(count_of(adapters)) - kGradient * frozen;
}

double adapter_activation_bytes(const Config& config, const std::vector<ParameterShape>& parameters,
                                const ComputePlace& place) {
  if (!config.lora.enabled()) return 0.0;
  const double element = config.trainer.use_amp ? 2.0 : 4.0;
  const double dropped = config.lora.dropout > 0.0 ? element + (place.cuda ? 1.0 : element) : 0.0;
  double per_token = 0.0;
  for (const ParameterShape& matrix : adapter_shapes(config, parameters)) {
    const bool looked_up = matrix.name.ends_with(kTableA);
    if (!looked_up && !matrix.name.ends_with(".lora_A.weight")) continue;
    per_token += static_cast<double>(matrix.sizes[0]) * element;
    if (!looked_up) per_token += static_cast<double>(matrix.sizes[1]) * dropped;
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
         parameter.ends_with(kTableA) || parameter.ends_with(kTableB) ||
         parameter.ends_with(kRowsOfTokens) || parameter == kPromptName;
}

bool is_trained_with_adapters(std::string_view parameter) {
  return is_of_adapter(parameter) || is_of_classifier(parameter);
}

}  // namespace ddp::train
