// The vocabulary and the parameters of a BERT.
#include "trainer/task/bert_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "trainer/interop/base_settings.h"
#include "trainer/metrics/text.h"
#include "trainer/model/bert/bert_classifier.h"
#include "trainer/model/bert_family.h"
#include "trainer/model/cost/tensor_cost.h"
#include "trainer/model/lora.h"
#include "trainer/model/pretrained_config.h"
#include "trainer/runtime/error.h"
#include "trainer/task/adapted_model.h"
#include "trainer/tokenizer/special_tokens.h"
#include "trainer/tokenizer/tokenizer_folder.h"
#include "trainer/tokenizer/wordpiece/bert_words.h"
#include "trainer/tokenizer/wordpiece/wordpiece_trainer.h"

namespace ddp::train {
namespace {

std::vector<ParameterShape> adapters_alone(const Config& config,
                                           const std::vector<ParameterShape>& model) {
  auto shapes = adapter_shapes(config, model);
  std::erase_if(shapes, [](const ParameterShape& each) { return !is_of_adapter(each.name); });
  return shapes;
}

/// The tokenizer of a folder or a snapshot; null if it has none.
std::unique_ptr<Tokenizer> tokenizer_beside_weights(const std::string& init_from) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(init_from, ignored))
    return tokenizer_from_state(read_pretrained_bert(init_from).tokenizer_state);
  return holds_tokenizer(init_from) ? load_tokenizer("bert_config.init_from", init_from) : nullptr;
}

/// Throws UserError: the weights' embeddings are those of other tokens.
void check_same_vocabulary(const Tokenizer& named, const Config& config) {
  std::unique_ptr<Tokenizer> theirs;
  try {
    theirs = tokenizer_beside_weights(config.bert.init_from);
  } catch (const UserError&) {
    return;  // of a kind that cannot be read: that is why another file is named
  }
  if (theirs == nullptr || have_same_tokens(named, *theirs)) return;
  throw UserError(fmt::format(
      "data_config.tokenizer: {} is another vocabulary than that of bert_config.init_from={}; set "
      "data_config.tokenizer=null to use the one that the weights were trained with",
      config.data.tokenizer, config.bert.init_from));
}

}  // namespace

std::unique_ptr<Tokenizer> open_bert_tokenizer(const Config& config,
                                               const std::map<std::string, std::string>* metadata) {
  const std::string& named = config.data.tokenizer;
  if (named == "char" || named == "byte") {
    throw UserError(fmt::format(
        "data_config.tokenizer: {} does not apply to task={}, which needs BERT's vocabulary; name "
        "a folder with tokenizer.json or vocab.txt",
        named, task_name(config.task)));
  }
  if (!named.empty()) {
    auto tokenizer = load_tokenizer("data_config.tokenizer", named);
    if (metadata == nullptr && !config.bert.init_from.empty())
      check_same_vocabulary(*tokenizer, config);
    return tokenizer;
  }
  if (metadata != nullptr) return tokenizer_of_bert(*metadata);
  return config.bert.init_from.empty() ? nullptr : tokenizer_beside_weights(config.bert.init_from);
}

std::unique_ptr<Tokenizer> trained_vocabulary(const std::vector<TableRow>& rows,
                                              const std::vector<int64_t>& training) {
  constexpr int64_t kSize = 8000;
  constexpr std::size_t kMostCharacters = 3000;
  WordCounts words;
  for (const int64_t row : training) {
    const TableRow& texts = rows[static_cast<std::size_t>(row)];
    for (const std::string* text : {&texts.text, &texts.text_pair}) {
      for_each_bert_word(*text, BertWordOptions{},
                         [&words](std::string_view word) { words.add_word(word); });
    }
  }
  return std::make_unique<WordpieceTokenizer>(train_wordpiece(words, kSize, kMostCharacters));
}

std::unique_ptr<Tokenizer> tokenizer_of_bert(const std::map<std::string, std::string>& metadata) {
  const auto state = metadata.find(kTokenizerState);
  if (state == metadata.end())
    throw RunError("the snapshot holds no vocabulary: not one of a BERT");
  return tokenizer_from_state(state->second);
}

int32_t required_token(const Tokenizer& tokenizer, const char* token) {
  if (const auto id = tokenizer.token_of(token)) return *id;
  throw UserError(
      fmt::format("the {} vocabulary of {} tokens has no {}, which BERT needs; add it to "
                  "vocab.txt, or train a vocabulary with trainer tokenize --tokenizer wordpiece",
                  tokenizer.kind(), tokenizer.size(), token));
}

BertTokens bert_tokens(const Tokenizer& tokenizer, const BertConfig& bert) {
  const BertTokenNames& names = token_names_of(tokenizer);
  return {required_token(tokenizer, names.pad), required_token(tokenizer, names.first),
          required_token(tokenizer, names.last), traits_of(bert.family).separators,
          bert.family == BertFamily::kBert && bert.type_vocab_size > 1};
}

BertSizes bert_sizes(const TextLines& lines, int64_t block_size, int64_t vocab_size) {
  BertSizes sizes{vocab_size, block_size};
  sizes.longest_row = lines.longest() + kAroundText;
  const auto count = static_cast<double>(std::max<int64_t>(1, lines.size()));
  sizes.mean_row = static_cast<double>(lines.tokens()) / count + kAroundText;
  return sizes;
}

std::vector<NamedTensor> named_tensors(const std::vector<ModelParameter>& parameters) {
  std::vector<NamedTensor> result;
  for (const auto& p : parameters) result.push_back({p.name, p.tensor});
  return result;
}

BertTask::BertTask(const Config& config, const std::map<std::string, std::string>* metadata)
    : config_(config),
      fresh_(metadata == nullptr),
      tokenizer_(open_bert_tokenizer(config, metadata)),
      base_digest_(stored_base_digest(metadata)) {
  if (metadata != nullptr && metadata->contains(kBaseSettings)) {
    base_settings_ = metadata->at(kBaseSettings);
  } else if (metadata == nullptr && tokenizer_ != nullptr && !config.bert.init_from.empty()) {
    base_settings_ = base_settings_state(config.bert.init_from, tokenizer_.get());
  }
}

std::vector<Parameter> BertTask::parameters() const {
  return trainable_parameters(model_parameters());
}

void BertTask::join(ProcessGroup& group, int64_t /*micro_batches*/) {
  if (config_.adapted()) check_same_base(base_digest_, config_, group);
}

void BertTask::check_padding(int64_t pad) const {
  const bool of_roberta = config_.bert.family == BertFamily::kRoberta;
  if (!of_roberta || config_.bert.position_offset == pad + 1) return;
  throw UserError(fmt::format(
      "bert_config.position_offset: {}: positions begin after the padding, whose id in the "
      "vocabulary is {}; set {}, or use the vocabulary that the weights were trained with",
      config_.bert.position_offset, pad, pad + 1));
}

void BertTask::adapt(torch::nn::Module& model, std::optional<uint64_t> seed) {
  if (!config_.adapted()) return;
  check_base(config_, tokenizer_->size());
  base_digest_ = config_.prompt_tuning.enabled()
                     ? add_prompt_to_base(*model.as<BertForSequenceClassificationImpl>(), config_,
                                          *tokenizer_, seed, base_digest_)
                     : add_adapters_to_base(model, config_, seed, base_digest_);
}

std::vector<std::string> BertTask::describe_model(const torch::nn::Module& model) const {
  const BertConfig& bert = config_.bert;
  const int64_t parameters = parameter_count(model);
  std::vector<std::string> lines = {
      fmt::format("Model: {}, {} layers, {} heads, {} channels; number of parameters: {} ({})",
                  traits_of(bert.family).described, bert.n_layer, bert.n_head, bert.n_embd,
                  short_number(static_cast<double>(parameters)), parameters)};
  if (config_.adapted()) lines.push_back(describe_adapters(whole_shapes(), config_, parameters));
  return lines;
}

std::vector<std::string> BertTask::shape_keys() const {
  return {"bert_config.family",
          "bert_config.n_layer",
          "bert_config.n_head",
          "bert_config.n_embd",
          "bert_config.intermediate",
          "bert_config.type_vocab_size",
          "bert_config.problem_type",
          "data_config.block_size",
          "bert_config.position_offset",
          "lora.rank",
          "lora.targets",
          "lora.alpha",
          "lora.use_rslora",
          "prompt_tuning.tokens",
          "quantize.base"};
}

std::vector<ParameterPart> BertTask::parameter_parts() const {
  auto parts = bert_parameter_parts(config_.bert, sizes());
  if (config_.adapted()) {
    const auto shapes = bert_parameter_shapes(config_.bert, sizes());
    parts.push_back({"adapters", count_of(adapters_alone(config_, shapes))});
  }
  return parts;
}

// No gradients of frozen matrices: 4 instead of 6 for each of their weights.
double BertTask::flops_per_unit() const {
  const BertSizes sizes = this->sizes();
  const double whole = bert_flops(config_.bert, sizes);
  if (!config_.adapted()) return whole;
  const auto shapes = bert_parameter_shapes(config_.bert, sizes);
  double frozen = 0.0;
  for (const ParameterShape& each : shapes)
    if (each.role == ParameterRole::kHidden) frozen += static_cast<double>(each.count());
  return whole + sizes.mean_row * adapter_flops(config_, shapes, frozen);
}

std::vector<MemoryItem> BertTask::memory_items(const Config& config,
                                               const ComputePlace& place) const {
  return bert_memory_items(config, sizes(), place);
}

std::map<std::string, std::string> BertTask::metadata() const {
  std::map<std::string, std::string> metadata = {{kTokenizerState, tokenizer_->state()}};
  if (!base_digest_.empty()) metadata[kBaseDigest] = base_digest_;
  if (!base_settings_.empty()) metadata[kBaseSettings] = base_settings_;
  return metadata;
}

void BertTask::check_resume(const std::map<std::string, std::string>& metadata,
                            const std::string& snapshot) const {
  const auto theirs = metadata.find(kTokenizerState);
  if (theirs != metadata.end() &&
      without_end_mark(theirs->second) == without_end_mark(tokenizer_->state()))
    return;
  throw UserError(fmt::format(
      "{} was trained with another vocabulary than {}; omit data_config.tokenizer to continue "
      "with the snapshot's, or set trainer_config.snapshot_path to a new file to start from "
      "scratch",
      snapshot, config_.data.tokenizer));
}

}  // namespace ddp::train
