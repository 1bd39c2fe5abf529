#include "trainer/task/adapted_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "trainer/config/add_tokens.h"
#include "trainer/interop/pretrained_weights.h"
#include "trainer/metrics/text.h"
#include "trainer/model/bert/bert_classifier.h"
#include "trainer/model/bert_family.h"
#include "trainer/model/blocks/fused_adapter.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/load/peft_settings.h"
#include "trainer/model/lora.h"
#include "trainer/model/prompt_tuning.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/xxh3.h"

namespace ddp::train {
namespace {

/// "lm_head" of "lm_head.weight".
std::string before_last_dot(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

/// Without the last `count` rows.
torch::Tensor first_rows(const torch::Tensor& table, int64_t count) {
  return table.detach().narrow(0, 0, table.size(0) - count);
}

/// Every weight of `model` but its adapters', with trained rows in their tables.
std::vector<NamedTensor> plain_weights(const torch::nn::Module& model) {
  std::vector<NamedTensor> result;
  const auto all = model.named_parameters();
  for (const auto& [name, weight] : all.pairs()) {
    if (is_of_adapter(name)) continue;
    const auto* const rows = all.find(fmt::format("{}.{}", before_last_dot(name), kRowsOfTokens));
    result.push_back({name, rows == nullptr
                                ? weight
                                : torch::cat({first_rows(weight, rows->size(0)), rows->detach()})});
  }
  return result;
}

/// Returns the frozen weights.
std::vector<NamedTensor> base_weights(const torch::nn::Module& model) {
  auto weights = plain_weights(model);
  std::erase_if(weights,
                [](const NamedTensor& each) { return is_trained_with_adapters(each.name); });
  return weights;
}

const PretrainedLayout& layout_below(const Config& config) {
  if (config.task == TaskKind::kMaskedLm) return kBertLayout;
  if (config.task == TaskKind::kTextClassification) return kBertClassifierLayout;
  return *causal_architecture(config).huggingface_layout();
}

bool is_of_rows(std::string_view name) { return name.ends_with(kRowsOfTokens); }

/// The values of what `model` trains, and of `more`, in a folder of peft's. A classifier's layers,
/// and rows of tokens, keep theirs if they are not there.
void load_trained(const torch::nn::Module& model, PretrainedLayout layout,
                  const std::string& folder, std::vector<NamedTensor> more = {}) {
  for (const auto& item : model.named_parameters()) {
    if (!is_trained_with_adapters(item.key())) continue;
    more.push_back({item.key(), item.value()});
    if (!is_of_adapter(item.key())) layout.is_optional = is_of_classifier;
    if (is_of_rows(item.key())) layout.is_optional = is_of_rows;  // a tied head's, too
  }
  load_pretrained(folder, std::move(layout), more);
}

std::string digest_line(const std::string& name, const torch::Tensor& values) {
  const auto tensor = values.detach().to(torch::kCPU).contiguous();
  return fmt::format("{} [{}] {}\n", name, fmt::join(tensor.sizes(), ","),
                     xxh3_hex(tensor.const_data_ptr(), tensor.nbytes()));
}

using Modules = torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>;

/// Null: `weight` is of another kind of layer, or of the output layer, which is not quantized.
AdaptableLinearImpl* layer_of(const Modules& modules, const std::string& weight) {
  if (!weight.ends_with(".weight")) return nullptr;
  const std::string layer = before_last_dot(weight);
  const auto* module = modules.find(layer);
  return module == nullptr || is_of_tokens(layer) ? nullptr : (*module)->as<AdaptableLinearImpl>();
}

void check_format(const Config& config, const QuantizedWeight& codes, const std::string& base) {
  const auto there = codes.is_nf4() ? BaseFormat::kNf4 : BaseFormat::kInt8;
  if (there == config.quantize.base) return;
  throw UserError(
      fmt::format("quantize.base={}: the weights of {} are in {} already; set quantize.base={}",
                  name_of(config.quantize.base), base, name_of(there), name_of(there)));
}

void check_base_exists(const ModelBelow& below) {
  const auto& [base, key, described] = below;
  std::error_code ignored;
  if (base.empty() || std::filesystem::exists(base, ignored)) return;
  throw UserError(
      fmt::format("{}: {}: no such folder or snapshot, and the adapters (lora.rank, "
                  "prompt_tuning) need it; put it back there, or give its place with --base "
                  "(generate, eval, export) or as {} (training)",
                  key, base, key));
}

void check_digest(const std::string& base, const std::string& digest, const std::string& expected) {
  if (expected.empty() || expected == digest) return;
  throw UserError(fmt::format(
      "{}: is not the model that the adapters were trained on: the digest of its weights is {}, "
      "the snapshot names {}; put that model there",
      base, digest, expected));
}

/// The token embedding is the first table.
template <class Model>
torch::Tensor token_table(const Model& model) {
  for (const auto& p : model.model_parameters())
    if (p.role == ParameterRole::kEmbedding) return p.tensor;
  return {};
}

/// The tokens of the text, as often as needed; without one any, as peft's SAMPLE_VOCAB.
torch::Tensor first_tokens(const PromptConfig& prompt, const Tokenizer& tokenizer, uint64_t seed) {
  if (prompt.text.empty()) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    return torch::randint(0, tokenizer.size(), {prompt.tokens}, generator, torch::kInt64);
  }
  auto text = tokenizer.beginning();
  try {
    const auto encoded = tokenizer.encode(prompt.text);
    text.insert(text.end(), encoded.begin(), encoded.end());
    if (encoded.empty()) throw UserError("has no token; give another text");
  } catch (const UserError& error) {
    throw UserError(fmt::format("prompt_tuning.text: {}", error.what()));
  }
  auto tokens = torch::empty({prompt.tokens}, torch::kInt64);
  for (int64_t i = 0; i < prompt.tokens; ++i)
    tokens[i] = text[static_cast<std::size_t>(i) % text.size()];
  return tokens;
}

double scale_of_embeddings(const CausalModel& model) { return model.embedding_scale(); }
double scale_of_embeddings(const BertForSequenceClassificationImpl& /*model*/) { return 1.0; }

std::string own_prompt_name(const std::string& theirs) {
  constexpr std::string_view kModel = "base_model.";
  return theirs.starts_with(kModel) ? theirs.substr(kModel.size()) : theirs;
}

/// A prompt in peft's format, with the layers of a text classifier if present.
const PretrainedLayout kPromptLayout = {"prompt_tuning.init_from",
                                        own_prompt_name,
                                        is_never_transposed,
                                        is_never_optional,
                                        nullptr,
                                        "word_embeddings.weight",
                                        "peft's save_pretrained writes it",
                                        {},
                                        "adapter_model.safetensors"};

std::string describe_start(const PromptConfig& prompt) {
  if (!prompt.init_from.empty()) return "from " + prompt.init_from;
  return prompt.text.empty() ? "from tokens drawn from the vocabulary" : "from a text";
}

/// Loads the frozen weights, one at a time, and quantizes those of linear layers if wanted. Returns
/// the digest of all as they were before.
std::string load_base(torch::nn::Module& model, const Config& config, const std::string& expected,
                      int64_t new_tokens = 0) {
  const std::string base = model_below(config).path;
  const int64_t trained_rows = std::ssize(add_tokens(config));
  auto weights = base_weights(model);
  const Modules modules = model.named_modules();
  std::vector<std::string> lines(weights.size());
  const auto take = [&](std::size_t i, const torch::Tensor& values) {
    const std::string& name = weights[i].name;
    auto* const layer = config.quantize.enabled() ? layer_of(modules, name) : nullptr;
    if (layer == nullptr) {
      weights[i].tensor.copy_(values);
      return;
    }
    lines[i] = digest_line(name, values);
    layer->hold(quantize(values, config.quantize.base));
    weights[i].tensor.reset();
    ::malloc_trim(0);  // the weight's place, and what rounding used: keep_freed_memory()
  };
  const auto take_codes = [&](std::size_t i, const QuantizedWeight& codes) {
    const std::string& name = weights[i].name;
    auto* const layer = layer_of(modules, name);
    check_format(config, codes, base);
    if (layer == nullptr) {  // a head's, which bitsandbytes quantizes as well
      weights[i].tensor.copy_(dequantize(codes, 0, codes.rows()));
      return;
    }
    lines[i] = digest_line(name, codes.codes) + digest_line("absmax", codes.absmax);
    if (codes.absmax_scales.defined()) lines[i] += digest_line("scales", codes.absmax_scales);
    layer->hold(codes);
    weights[i].tensor.reset();
  };
  using TakeCodes = std::function<void(std::size_t, QuantizedWeight)>;
  if (!base.empty()) {
    std::vector<ParameterShape> shapes;
    for (const auto& [name, tensor, layout] : weights)
      shapes.push_back({name, tensor.sizes().vec()});
    load_pretrained(base, layout_below(config), shapes, take,
                    config.quantize.enabled() ? TakeCodes(take_codes) : TakeCodes(), trained_rows,
                    trained_rows == 0 ? 0 : new_tokens);
  }
  std::string all;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::string& name = weights[i].name;
    const int64_t left_out = is_of_tokens(before_last_dot(name)) ? trained_rows : 0;
    all += lines[i].empty() ? digest_line(name, first_rows(weights[i].tensor, left_out)) : lines[i];
  }
  std::string digest = xxh3_hex(all.data(), all.size());
  check_digest(base, digest, expected);
  return digest;
}

template <class Model>
torch::Tensor first_prompt(const Model& model, const PromptConfig& prompt,
                           const Tokenizer& tokenizer, uint64_t seed) {
  const auto table = token_table(model).detach();
  if (prompt.init_from.empty())
    return table.index_select(0, first_tokens(prompt, tokenizer, seed)) *
           scale_of_embeddings(model);
  auto values = torch::empty({prompt.tokens, table.size(1)});
  load_trained(model, kPromptLayout, prompt.init_from, {{kPromptName, values}});
  return values;
}

/// `weights` has those of the layers already, which the model has before `fused`.
void add_fused(std::vector<NamedTensor>& weights, const std::string& name,
               const FusedAdapterImpl& fused) {
  if (fused.plain()) return;
  const auto sum = fused.merged_weight();
  int64_t first = 0;
  for (const auto& [layer, rows] : fused.layers()) {
    const std::string weight = name.substr(0, name.rfind('.') + 1) + layer + ".weight";
    const auto own = std::ranges::find(weights, weight, &NamedTensor::name);
    own->tensor = own->tensor.detach() + sum.narrow(0, first, rows);
    first += rows;
  }
}

template <class Model>
std::string add_prompt(Model& model, const Config& config, const Tokenizer& tokenizer,
                       std::optional<uint64_t> seed, const std::string& expected) {
  std::string digest = load_base(model, config, expected);
  const PromptConfig& prompt = config.prompt_tuning;
  model.add_prompt(seed && expected.empty()
                       ? first_prompt(model, prompt, tokenizer, *seed)
                       : torch::zeros({prompt.tokens, token_table(model).size(1)}));
  return digest;
}

}  // namespace

std::vector<Parameter> trainable_parameters(const std::vector<ModelParameter>& all) {
  const bool adapted = std::any_of(all.begin(), all.end(),
                                   [](const ModelParameter& p) { return is_of_adapter(p.name); });
  std::vector<Parameter> trained;
  for (const ModelParameter& p : all) {
    if (!adapted || is_trained_with_adapters(p.name)) trained.push_back({p.name, p.tensor, p.role});
  }
  return trained;
}

std::vector<ParameterShape> trainable_shapes(std::vector<ParameterShape> all) {
  if (std::any_of(all.begin(), all.end(),
                  [](const ParameterShape& each) { return is_of_adapter(each.name); }))
    std::erase_if(all, [](const auto& each) { return !is_trained_with_adapters(each.name); });
  return all;
}

std::string stored_base_digest(const std::map<std::string, std::string>* metadata) {
  const bool named = metadata != nullptr && metadata->contains(kBaseDigest);
  return named ? metadata->at(kBaseDigest) : "";
}

void check_base(const Config& config, int64_t vocab_size) {
  const ModelBelow below = model_below(config);
  check_base_exists(below);
  if (trains_causal_lm(config.task) && !below.path.empty())
    check_pretrained(below.path, causal_architecture(config), config, vocab_size,
                     std::ssize(add_tokens(config)));
}

std::string add_adapters_to_base(torch::nn::Module& model, const Config& config,
                                 std::optional<uint64_t> seed, const std::string& expected,
                                 int64_t new_tokens) {
  auto* const causal = dynamic_cast<CausalModel*>(&model);
  const int64_t trained = std::ssize(add_tokens(config));
  const bool begins_there = expected.empty() && !config.lora.init_from.empty();
  if (begins_there)
    check_rows_of_tokens(config.lora.init_from, trained, causal ? causal->vocab_size() : 0);
  std::string digest = load_base(model, config, expected, new_tokens);
  add_adapters(model, config.lora, seed);
  if (causal != nullptr && trained > 0) causal->train_last_rows(trained);
  if (begins_there) load_trained(model, kPeftLayout, config.lora.init_from);
  return digest;
}

std::string add_prompt_to_base(CausalModel& model, const Config& config, const Tokenizer& tokenizer,
                               std::optional<uint64_t> seed, const std::string& expected) {
  return add_prompt(model, config, tokenizer, seed, expected);
}

std::string add_prompt_to_base(BertForSequenceClassificationImpl& model, const Config& config,
                               const Tokenizer& tokenizer, std::optional<uint64_t> seed,
                               const std::string& expected) {
  return add_prompt(model, config, tokenizer, seed, expected);
}

std::vector<NamedTensor> merged_weights(const torch::nn::Module& model) {
  auto weights = plain_weights(model);
  bool changes_table = false;
  for (const auto& item : model.named_modules()) {
    const auto* layer = dynamic_cast<const Adaptable*>(item.value().get());
    if (layer == nullptr) continue;
    if (const auto* const fused = item.value()->as<FusedAdapterImpl>()) {
      add_fused(weights, item.key(), *fused);
      continue;
    }
    if (item.value()->as<torch::nn::EmbeddingImpl>() != nullptr) changes_table = !layer->plain();
    const std::string name = item.key() + ".weight";
    const auto of_layer =
        std::find_if(weights.begin(), weights.end(),
                     [&](const NamedTensor& weight) { return weight.name == name; });
    const bool is_tied = of_layer == weights.end();  // or quantized, and then not plain
    if (layer->plain() && !(is_tied && changes_table)) continue;
    if (is_tied)
      weights.push_back({name, layer->merged_weight()});
    else
      of_layer->tensor = layer->merged_weight();
  }
  return weights;
}

void check_same_base(const std::string& digest, const Config& config, ProcessGroup& group) {
  if (group.size() == 1) return;
  const auto digests = group.gather_texts(digest);
  const auto other = std::find_if(digests.begin(), digests.end(),
                                  [&](const std::string& each) { return each != digests.front(); });
  if (other == digests.end()) return;
  const ModelBelow below = model_below(config);
  throw UserError(
      fmt::format("{}: rank {} reads another pretrained model from {} than rank 0; "
                  "give all nodes the same one",
                  below.key, other - digests.begin(), below.path));
}

std::string describe_adapters(const std::vector<ParameterShape>& trained, const Config& config,
                              int64_t all) {
  const LoraConfig& lora = config.lora;
  const int64_t tokens = std::ssize(add_tokens(config));
  int64_t count = 0, matrices = 0;
  for (const ParameterShape& p : trained) {
    count += p.count();
    matrices += is_of_adapter(p.name) && !is_of_rows(p.name) ? 1 : 0;
  }
  const std::string what =
      config.prompt_tuning.enabled()
          ? fmt::format("Prompt tuning: {} virtual tokens, {}", config.prompt_tuning.tokens,
                        describe_start(config.prompt_tuning))
          : fmt::format("LoRA: rank {}, alpha {}, dropout {} on {} layers ({}){}", lora.rank,
                        lora.alpha, lora.dropout, matrices / 2, fmt::join(lora.targets, ", "),
                        tokens == 0 ? "" : ", and the rows of " + counted(tokens, "token"));
  return fmt::format("{}; trained: {} parameters, {:.2g} % of all", what,
                     short_number(static_cast<double>(count)),
                     100.0 * static_cast<double>(count) / static_cast<double>(all));
}

}  // namespace ddp::train
