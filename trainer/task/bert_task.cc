// The vocabulary and the parameters of a BERT.
#include "trainer/task/bert_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "trainer/interop/base_settings.h"
#include "trainer/metrics/text.h"
#include "trainer/model/pretrained_config.h"
#include "trainer/runtime/error.h"
#include "trainer/tokenizer/tokenizer_folder.h"
#include "trainer/tokenizer/wordpiece/bert_words.h"
#include "trainer/tokenizer/wordpiece/wordpiece_tokenizer.h"
#include "trainer/tokenizer/wordpiece/wordpiece_trainer.h"

namespace ddp::train {
namespace {

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
    for_each_bert_word(rows[static_cast<std::size_t>(row)].text, BertWordOptions{},
                       [&words](std::string_view word) { words.add_word(word); });
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

BertTokens bert_tokens(const Tokenizer& tokenizer) {
  return {required_token(tokenizer, kPadToken), required_token(tokenizer, kFirstToken),
          required_token(tokenizer, kLastToken)};
}

BertSizes bert_sizes(const TextLines& lines, int64_t block_size, int64_t vocab_size) {
  BertSizes sizes{vocab_size, block_size};
  sizes.longest_row = lines.longest() + kAroundText;
  const auto count = static_cast<double>(std::max<int64_t>(1, lines.size()));
  sizes.mean_row = static_cast<double>(lines.tokens()) / count + kAroundText;
  return sizes;
}

std::vector<Parameter> bert_optimizer_parameters(const std::vector<ModelParameter>& parameters) {
  std::vector<Parameter> result;
  for (const auto& p : parameters) result.push_back({p.name, p.tensor, p.role});
  return result;
}

std::vector<NamedTensor> named_tensors(const std::vector<ModelParameter>& parameters) {
  std::vector<NamedTensor> result;
  for (const auto& p : parameters) result.push_back({p.name, p.tensor});
  return result;
}

std::string describe_bert(const BertConfig& bert, int64_t parameters) {
  return fmt::format("Model: BERT, {} layers, {} heads, {} channels; number of parameters: {} ({})",
                     bert.n_layer, bert.n_head, bert.n_embd,
                     short_number(static_cast<double>(parameters)), parameters);
}

BertTask::BertTask(const Config& config, const std::map<std::string, std::string>* metadata)
    : config_(config),
      fresh_(metadata == nullptr),
      tokenizer_(open_bert_tokenizer(config, metadata)) {
  if (metadata != nullptr && metadata->contains(kBaseSettings)) {
    base_settings_ = metadata->at(kBaseSettings);
  } else if (metadata == nullptr && tokenizer_ != nullptr && !config.bert.init_from.empty()) {
    base_settings_ = base_settings_state(config.bert.init_from, tokenizer_.get());
  }
}

std::vector<std::string> BertTask::shape_keys() const {
  return {"bert_config.n_layer", "bert_config.n_head", "bert_config.n_embd",
          "bert_config.intermediate", "data_config.block_size"};
}

std::vector<ParameterPart> BertTask::parameter_parts() const {
  return bert_parameter_parts(config_.bert, sizes());
}

std::vector<MemoryItem> BertTask::memory_items(const Config& config,
                                               const ComputePlace& place) const {
  return bert_memory_items(config, sizes(), place);
}

std::map<std::string, std::string> BertTask::metadata() const {
  std::map<std::string, std::string> metadata = {{kTokenizerState, tokenizer_->state()}};
  if (!base_settings_.empty()) metadata[kBaseSettings] = base_settings_;
  return metadata;
}

void BertTask::check_resume(const std::map<std::string, std::string>& metadata,
                            const std::string& snapshot) const {
  const auto theirs = metadata.find(kTokenizerState);
  if (theirs != metadata.end() && theirs->second == tokenizer_->state()) return;
  throw UserError(fmt::format(
      "{} was trained with another vocabulary than {}; omit data_config.tokenizer to continue "
      "with the snapshot's, or set trainer_config.snapshot_path to a new file to start from "
      "scratch",
      snapshot, config_.data.tokenizer));
}

}  // namespace ddp::train
