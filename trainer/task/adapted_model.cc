#include "trainer/task/adapted_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "trainer/interop/pretrained_weights.h"
#include "trainer/metrics/text.h"
#include "trainer/model/blocks/adaptable_linear.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/lora.h"
#include "trainer/model/prompt_tuning.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/xxh3.h"

namespace ddp::train {
namespace {

/// Every weight of the pretrained model.
std::vector<NamedTensor> base_weights(const CausalModel& model) {
  std::vector<NamedTensor> result;
  for (const auto& p : model.model_parameters()) {
    if (!is_of_adapter(p.name)) result.push_back({p.name, p.tensor});
  }
  return result;
}

std::string digest_of(const std::vector<NamedTensor>& weights) {
  std::string all;
  for (const NamedTensor& weight : weights) {
    const auto tensor = weight.tensor.detach().to(torch::kCPU).contiguous();
    all += fmt::format("{} [{}] {}\n", weight.name, fmt::join(tensor.sizes(), ","),
                       xxh3_hex(tensor.const_data_ptr(), tensor.nbytes()));
  }
  return xxh3_hex(all.data(), all.size());
}

void check_base_exists(const std::string& base, const char* key) {
  std::error_code ignored;
  if (std::filesystem::exists(base, ignored)) return;
  throw UserError(
      fmt::format("{}: {}: no such folder or snapshot, and the adapters (lora.rank, "
                  "prompt_tuning) need it; name its place with --base in generate, eval and "
                  "export, or as {} in "
                  "training",
                  key, base, key));
}

void check_digest(const std::string& base, const std::string& digest,
                  const std::map<std::string, std::string>& metadata) {
  const auto named = metadata.find(kBaseDigest);
  if (named == metadata.end() || named->second == digest) return;
  throw UserError(fmt::format(
      "{}: is not the model that the adapters were trained on: the digest of its weights is {}, "
      "the snapshot names {}; put that model there",
      base, digest, named->second));
}

/// The token embedding is the first table.
torch::Tensor token_table(const CausalModel& model) {
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

/// A prompt in peft's format.
const PretrainedLayout kPromptLayout = {"prompt_tuning.init_from",
                                        [](const std::string& theirs) { return theirs; },
                                        is_never_transposed,
                                        is_never_optional,
                                        nullptr,
                                        "word_embeddings.weight",
                                        "peft's save_pretrained writes it",
                                        {},
                                        "adapter_model.safetensors"};

torch::Tensor first_prompt(const CausalModel& model, const PromptConfig& prompt,
                           const Tokenizer& tokenizer, uint64_t seed) {
  if (!prompt.init_from.empty()) {
    auto values = torch::empty({prompt.tokens, model.width()});
    load_pretrained(prompt.init_from, kPromptLayout, {{kPromptName, values}});
    return values;
  }
  const auto tokens = first_tokens(prompt, tokenizer, seed);
  return token_table(model).detach().index_select(0, tokens) * model.embedding_scale();
}

std::string describe_start(const PromptConfig& prompt) {
  if (!prompt.init_from.empty()) return "from " + prompt.init_from;
  return prompt.text.empty() ? "from tokens drawn from the vocabulary" : "from a text";
}

}  // namespace

std::vector<Parameter> trainable_parameters(const CausalModel& model) {
  std::vector<Parameter> all, adapters;
  for (const auto& p : model.model_parameters()) {
    all.push_back({p.name, p.tensor, p.role});
    if (is_of_adapter(p.name)) adapters.push_back(all.back());
  }
  return adapters.empty() ? all : adapters;
}

void check_base(const Config& config, int64_t vocab_size) {
  const CausalArchitecture& architecture = causal_architecture(config);
  const std::string base = architecture.pretrained(config);
  if (base.empty()) return;
  check_base_exists(base, architecture.huggingface_layout()->key);
  check_pretrained(base, architecture, config, vocab_size);
}

std::string add_adapters_to_base(CausalModel& model, const Config& config,
                                 const Tokenizer& tokenizer, std::optional<uint64_t> seed,
                                 const std::map<std::string, std::string>* metadata) {
  const CausalArchitecture& architecture = causal_architecture(config);
  const std::string base = architecture.pretrained(config);
  const auto weights = base_weights(model);
  if (!base.empty()) load_pretrained(base, *architecture.huggingface_layout(), weights);
  std::string digest = digest_of(weights);
  if (metadata != nullptr) check_digest(base, digest, *metadata);
  if (!config.prompt_tuning.enabled())
    add_adapters(model, config.lora, seed);
  else if (seed && metadata == nullptr)
    model.add_prompt(first_prompt(model, config.prompt_tuning, tokenizer, *seed));
  else
    model.add_prompt(torch::zeros({config.prompt_tuning.tokens, model.width()}));
  return digest;
}

std::vector<NamedTensor> merged_weights(const CausalModel& model) {
  auto weights = base_weights(model);
  for (const auto& item : model.named_modules()) {
    const auto* linear = item.value()->as<AdaptableLinearImpl>();
    if (linear == nullptr || !linear->adapted()) continue;
    const auto of_layer = std::find_if(
        weights.begin(), weights.end(),
        [&](const NamedTensor& weight) { return weight.tensor.is_same(linear->weight); });
    of_layer->tensor = linear->merged_weight();
  }
  return weights;
}

void check_same_base(const std::string& digest, const Config& config, ProcessGroup& group) {
  if (group.size() == 1) return;
  const auto digests = group.gather_texts(digest);
  const auto other = std::find_if(digests.begin(), digests.end(),
                                  [&](const std::string& each) { return each != digests.front(); });
  if (other == digests.end()) return;
  const CausalArchitecture& architecture = causal_architecture(config);
  throw UserError(
      fmt::format("{}: rank {} reads another pretrained model from {} than rank 0; "
                  "give all nodes the same one",
                  architecture.huggingface_layout()->key, other - digests.begin(),
                  architecture.pretrained(config)));
}

std::string describe_adapters(const CausalModel& model, const Config& config) {
  const LoraConfig& lora = config.lora;
  int64_t trained = 0, layers = 0;
  for (const auto& p : trainable_parameters(model)) {
    trained += p.tensor.numel();
    ++layers;
  }
  const std::string what =
      config.prompt_tuning.enabled()
          ? fmt::format("Prompt tuning: {} virtual tokens, {}", config.prompt_tuning.tokens,
                        describe_start(config.prompt_tuning))
          : fmt::format("LoRA: rank {}, alpha {}, dropout {} on {} layers ({})", lora.rank,
                        lora.alpha, lora.dropout, layers / 2, fmt::join(lora.targets, ", "));
  return fmt::format(
      "{}; trained: {} parameters, {:.2g} % of all", what,
      short_number(static_cast<double>(trained)),
      100.0 * static_cast<double>(trained) / static_cast<double>(model.parameter_count()));
}

}  // namespace ddp::train
