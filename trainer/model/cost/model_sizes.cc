#include "trainer/model/cost/model_sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "trainer/model/bert_family.h"
#include "trainer/model/causal_architecture.h"
#include "trainer/model/load/size_keys.h"
#include "trainer/model/lora.h"
#include "trainer/model/pretrained_config.h"
#include "trainer/model/prompt_tuning.h"
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

void complete_causal(Config& config, const Given& given) {
  const CausalArchitecture* architecture = find_causal_architecture(config.model);
  if (architecture != nullptr) {
    complete_prompt_tuning(config, given);
    architecture->complete(config, given);
    return complete_lora(config, given);
  }
  std::vector<std::string> names;
  for (const auto* known : causal_architectures()) names.emplace_back(known->name());
  given.refuse("model",
               fmt::format("'{}' is not one of {}; {}", config.model, fmt::join(names, ", "),
                           did_you_mean(config.model, names, "choose one")));
}

/// Gives `bert` what is not given of what makes it a family's.
void take_family(BertConfig& bert, const BertConfig& from, const Given& given) {
  const auto take = [&](const char* key, auto& here, const auto& there) {
    if (!given.has(std::string("bert_config.") + key)) here = there;
  };
  take("type_vocab_size", bert.type_vocab_size, from.type_vocab_size);
  take("position_offset", bert.position_offset, from.position_offset);
  take("layer_norm_eps", bert.layer_norm_eps, from.layer_norm_eps);
}

void check_family(const BertConfig& bert, const Given& given) {
  const bool typed = bert.family != BertFamily::kDistilbert;
  const std::string family(name_of(bert.family));
  if (typed != (bert.type_vocab_size > 0)) {
    given.refuse("bert_config.type_vocab_size",
                 fmt::format("{}: family={} has {}", bert.type_vocab_size, family,
                             typed ? "token types; set at least 1" : "no token types; set 0"));
  }
  if (bert.position_offset > 0 && bert.family != BertFamily::kRoberta) {
    given.refuse("bert_config.position_offset",
                 fmt::format("{}: is for family=roberta; remove it", bert.position_offset));
  }
}

/// The rest is for labels that are classes.
void check_problem_type(const Config& config, const Given& given) {
  constexpr int64_t kShortestPair = 6;  // [CLS], a token, two times [SEP], a token, [SEP]
  if (!config.data.text_pair_column.empty() && config.data.block_size < kShortestPair)
    given.refuse("data_config.block_size", fmt::format("{} holds no pair of texts; set at least {}",
                                                       config.data.block_size, kShortestPair));
  const ProblemType type = config.bert.problem_type;
  if (type != ProblemType::kMultiLabel &&
      config.data.label_separator != DataConfig{}.label_separator) {
    given.refuse("data_config.label_separator",
                 fmt::format("is for bert_config.problem_type={}, not for {}; set problem_type, or "
                             "remove it",
                             name_of(ProblemType::kMultiLabel), name_of(type)));
  }
  if (type == ProblemType::kSingleLabel) return;
  const auto refuse = [&](const char* key) {
    given.refuse(key, fmt::format("is for bert_config.problem_type={}, not for {}; remove it",
                                  name_of(ProblemType::kSingleLabel), name_of(type)));
  };
  const ClassWeights& weights = config.bert.class_weights;
  if (weights.balanced || !weights.values.empty()) refuse("bert_config.class_weights");
  if (config.trainer.label_smoothing > 0.0) refuse("trainer_config.label_smoothing");
}

void complete_bert(Config& config, const Given& given) {
  constexpr int64_t kWidenedBy = 4;  // intermediate by n_embd, in every BERT of the authors
  constexpr int64_t kShortest = 3;   // [CLS], a token, [SEP]
  BertConfig& bert = config.bert;
  if (config.task == TaskKind::kTextClassification) complete_prompt_tuning(config, given);
  SizeKeys keys(bert, "bert_config", given);
  const bool by_name = !bert.model_type.empty() || bert.init_from.empty();
  if (!keys.sizes_given() && by_name) keys.take_preset(bert_presets(), "bert-tiny");
  if (bert.init_from.empty()) {
    const BertTraits& traits = traits_of(bert.family);
    BertConfig published;
    published.type_vocab_size = traits.type_vocab_size;
    published.position_offset = traits.position_offset;
    take_family(bert, published, given);
  }
  const auto widen = [&bert] {
    if (bert.intermediate == 0) bert.intermediate = kWidenedBy * bert.n_embd;
  };
  if (!bert.init_from.empty()) {
    keys.follow([&](const std::string& path) {
      const PretrainedBert there = read_pretrained_bert(path);
      if (bert.n_layer == 0) {
        keys.take_sizes(there);
        if (bert.intermediate == 0) bert.intermediate = there.shape.intermediate;
      }
      if (!given.has("bert_config.family")) bert.family = there.shape.family;
      if (!given.has("bert_config.problem_type")) bert.problem_type = there.shape.problem_type;
      if (!given.has("bert_config.hidden_pdrop")) bert.hidden_pdrop = there.shape.hidden_pdrop;
      if (!given.has("bert_config.attn_pdrop")) bert.attn_pdrop = there.shape.attn_pdrop;
      take_family(bert, there.shape, given);
      widen();
      return differences_from(there, bert, config);
    });
  }
  widen();
  keys.check_heads();
  check_family(bert, given);
  if (config.task == TaskKind::kTextClassification) check_problem_type(config, given);
  if (config.data.block_size >= kShortest) return complete_lora(config, given);
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

void complete_model(Config& config, const Given& given) {
  switch (config.task) {
    case TaskKind::kCausalLm:
    case TaskKind::kPreference:
      return complete_causal(config, given);
    case TaskKind::kMaskedLm:
    case TaskKind::kTextClassification:
      return complete_bert(config, given);
    case TaskKind::kImageClassification:
      return check_image(config.image, given);
  }
}

}  // namespace ddp::train
