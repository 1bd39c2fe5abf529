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
      fmt::format("{}: {}: no such folder or snapshot, and the adapters of lora.rank "
                  "need it; name its place with --base in generate, eval and export, or as {} in "
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
                                 std::optional<uint64_t> seed,
                                 const std::map<std::string, std::string>* metadata) {
  const CausalArchitecture& architecture = causal_architecture(config);
  const std::string base = architecture.pretrained(config);
  const auto weights = base_weights(model);
  if (!base.empty()) load_pretrained(base, *architecture.huggingface_layout(), weights);
  std::string digest = digest_of(weights);
  if (metadata != nullptr) check_digest(base, digest, *metadata);
  add_adapters(model, config.lora, seed);
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
  return fmt::format(
      "LoRA: rank {}, alpha {}, dropout {} on {} layers ({}); trained: {} "
      "parameters, {:.2g} % of all",
      lora.rank, lora.alpha, lora.dropout, layers / 2, fmt::join(lora.targets, ", "),
      short_number(static_cast<double>(trained)),
      100.0 * static_cast<double>(trained) / static_cast<double>(model.parameter_count()));
}

}  // namespace ddp::train
