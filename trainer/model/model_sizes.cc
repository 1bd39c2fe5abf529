#include "trainer/model/model_sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "trainer/hydra/compose/folders.h"
#include "trainer/model/pretrained_config.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

/// J. Devlin's and I. Turc's sizes.
const std::vector<ModelPreset>& bert_presets() {
  static const std::vector<ModelPreset> presets = {{"bert-tiny", 2, 2, 128},
                                                   {"bert-mini", 4, 4, 256},
                                                   {"bert-small", 4, 8, 512},
                                                   {"bert-medium", 8, 8, 512},
                                                   {"bert-base", 12, 12, 768}};
  return presets;
}

/// What gpt_config and bert_config have in common.
template <class Model>
class ModelKeys {
 public:
  ModelKeys(Model& model, std::string section, const Given& given)
      : model_(model), section_(std::move(section)), given_(given) {}

  /// Whether n_layer, n_head and n_embd are given: all of them, and no preset besides.
  bool sizes_given() const {
    std::vector<std::string> present;
    std::vector<std::string> absent;
    for (const char* name : {"n_layer", "n_head", "n_embd"})
      (given_.has(key(name)) ? present : absent).push_back(key(name));
    if (present.empty()) return false;
    if (given_.has(key("model_type"))) {
      given_.refuse(present.front(),
                    fmt::format("conflicts with {}={}; keep either the preset or the three sizes",
                                key("model_type"), model_.model_type));
    }
    if (!absent.empty()) {
      given_.refuse(present.front(),
                    fmt::format("{} {} missing; set n_layer, n_head and n_embd "
                                "together, or model_type instead",
                                fmt::join(absent, ", "), absent.size() == 1 ? "is" : "are"));
    }
    return true;
  }

  /// Of a ModelPreset or a PretrainedSizes.
  template <class Sizes>
  void take_sizes(const Sizes& from) {
    model_.n_layer = from.n_layer;
    model_.n_head = from.n_head;
    model_.n_embd = from.n_embd;
  }

  void take_preset(const std::vector<ModelPreset>& presets, const char* otherwise) {
    std::string& name = model_.model_type;
    if (name.empty()) name = otherwise;
    std::vector<std::string> names;
    for (const ModelPreset& preset : presets) {
      if (preset.name == name) return take_sizes(preset);
      names.emplace_back(preset.name);
    }
    given_.refuse(key("model_type"),
                  fmt::format("'{}' is not one of {}; {}", name, fmt::join(names, ", "),
                              did_you_mean(name, names, "choose one")));
  }

  /// `differences` are those from the model at init_from, once what is not given follows it.
  template <class Differences>
  void follow(Differences differences) {
    const std::string as_given = std::exchange(model_.init_from, absolute_path(model_.init_from));
    try {
      const std::vector<std::string> found = differences(model_.init_from);
      if (found.empty()) return;
      throw UserError(fmt::format("{}: does not fit: {}", as_given, fmt::join(found, "; ")));
    } catch (const UserError& error) {
      given_.refuse(key("init_from"), error.what());
    }
  }

  void check_heads() const {
    const int64_t below = model_.n_embd / model_.n_head * model_.n_head;
    if (below == model_.n_embd) return;
    given_.refuse(key("n_embd"),
                  fmt::format("{} is not divisible by {}={}; the nearest widths are {} and {}",
                              model_.n_embd, key("n_head"), model_.n_head,
                              std::max(model_.n_head, below), below + model_.n_head));
  }

 private:
  std::string key(const char* name) const { return section_ + "." + name; }

  Model& model_;
  const std::string section_;
  const Given& given_;
};

void complete_gpt(Config& config, const Given& given) {
  GptConfig& gpt = config.gpt;
  ModelKeys keys(gpt, "gpt_config", given);
  const bool by_name = !gpt.model_type.empty() || gpt.init_from.empty();
  if (!keys.sizes_given() && by_name) keys.take_preset(model_presets(), "gpt2");
  if (!gpt.init_from.empty()) {
    keys.follow([&](const std::string& folder) {
      const PretrainedGpt there = read_pretrained_gpt(folder);
      if (gpt.n_layer == 0) keys.take_sizes(there);
      if (!given.has("gpt_config.activation") && there.activation)
        gpt.activation = *there.activation;
      if (!given.has("gpt_config.tie_weights")) gpt.tie_weights = there.tie_weights;
      return differences_from(there, gpt, config.data.block_size);
    });
  }
  keys.check_heads();
}

void complete_bert(Config& config, const Given& given) {
  constexpr int64_t kWidenedBy = 4;  // intermediate by n_embd, in every BERT of the authors
  constexpr int64_t kShortest = 3;   // [CLS], a token, [SEP]
  BertConfig& bert = config.bert;
  ModelKeys keys(bert, "bert_config", given);
  const bool by_name = !bert.model_type.empty() || bert.init_from.empty();
  if (!keys.sizes_given() && by_name) keys.take_preset(bert_presets(), "bert-tiny");
  const auto widen = [&bert] {
    if (bert.intermediate == 0) bert.intermediate = kWidenedBy * bert.n_embd;
  };
  if (!bert.init_from.empty()) {
    keys.follow([&](const std::string& path) {
      const PretrainedBert there = read_pretrained_bert(path);
      if (bert.n_layer == 0) {
        keys.take_sizes(there);
        if (bert.intermediate == 0) bert.intermediate = there.intermediate;
      }
      widen();
      return differences_from(there, bert, config.data.block_size);
    });
  }
  widen();
  keys.check_heads();
  if (config.data.block_size >= kShortest) return;
  given.refuse("data_config.block_size",
               fmt::format("{} holds no token between [CLS] and [SEP]; set at least {}",
                           config.data.block_size, kShortest));
}

void check_image(const ImageConfig& image, const Given& given) {
  if (image.channels == 2)
    given.refuse("image_config.channels", "2 is neither gray (1) nor RGB (3)");
  if (image.network == ImageNetworkKind::kDense && image.batch_norm != BatchNormKind::kOff) {
    given.refuse("image_config.batch_norm",
                 "a dense network has none; set it to off, or image_config.network to conv");
  }
}

}  // namespace

const std::vector<ModelPreset>& model_presets() {
  static const std::vector<ModelPreset> presets = {
      {"openai-gpt", 12, 12, 768},  {"gpt2", 12, 12, 768},     {"gpt2-medium", 24, 16, 1024},
      {"gpt2-large", 36, 20, 1280}, {"gpt2-xl", 48, 25, 1600}, {"gopher-44m", 8, 16, 512},
      {"gpt-mini", 6, 6, 192},      {"gpt-micro", 4, 4, 128},  {"gpt-nano", 3, 3, 48}};
  return presets;
}

void complete_model(Config& config, const Given& given) {
  switch (config.task) {
    case TaskKind::kCausalLm:
      return complete_gpt(config, given);
    case TaskKind::kMaskedLm:
    case TaskKind::kTextClassification:
      return complete_bert(config, given);
    case TaskKind::kImageClassification:
      return check_image(config.image, given);
  }
}

}  // namespace ddp::train
