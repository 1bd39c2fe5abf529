// The common base of tasks that train a BERT: its vocabulary and parameters.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/model_config.h"
#include "trainer/data/text/bert_batch.h"
#include "trainer/data/text/table_file.h"
#include "trainer/data/text/text_lines.h"
#include "trainer/model/cost/bert_cost.h"
#include "trainer/model/model_parameter.h"
#include "trainer/optim/optimizer.h"
#include "trainer/task/task.h"
#include "trainer/tokenizer/tokenizer.h"
#include "trainer/tokenizer/wordpiece/wordpiece_tokenizer.h"

namespace ddp::train {

struct Config;

/// Metadata key of the tokenizer's state.
inline constexpr const char* kTokenizerState = "tokenizer";

/// Opens the tokenizer of the configuration, else of `metadata`, the snapshot's to resume from,
/// else of bert_config.init_from; else returns null. Throws UserError.
std::unique_ptr<Tokenizer> open_bert_tokenizer(const Config& config,
                                               const std::map<std::string, std::string>* metadata);

/// A WordPiece vocabulary of the rows that `training` numbers, as `trainer tokenize --tokenizer
/// wordpiece --train --vocab_size 8000` makes it, but with more characters: Chinese has over 1,000
/// in use. The same on every rank.
std::unique_ptr<Tokenizer> trained_vocabulary(const std::vector<TableRow>& rows,
                                              const std::vector<int64_t>& training);

/// The tokenizer in a snapshot's metadata. Throws RunError if it is missing or damaged.
std::unique_ptr<Tokenizer> tokenizer_of_bert(const std::map<std::string, std::string>& metadata);

/// The id of a token that the vocabulary must have. Throws UserError.
int32_t required_token(const Tokenizer& tokenizer, const char* token);
/// [PAD], [CLS] and [SEP], by their names there, as the model takes them. Throws UserError listing
/// what is missing.
BertTokens bert_tokens(const Tokenizer& tokenizer, const BertConfig& bert = {});

/// Returns the sizes for cost estimates of a training on these lines, in rows of at most
/// `block_size`.
BertSizes bert_sizes(const TextLines& lines, int64_t block_size, int64_t vocab_size);

std::vector<NamedTensor> named_tensors(const std::vector<ModelParameter>& parameters);

/// A task whose samples are texts, one a unit, and whose model is a BERT of `config`.
class BertTask : public Task {
 public:
  BertTask(const Config& config, const std::map<std::string, std::string>* metadata);

  std::vector<Parameter> parameters() const override;
  /// Checks that all ranks read the same model below adapters.
  void join(ProcessGroup& group, int64_t micro_batches) override;
  std::vector<std::string> shape_keys() const override;

  int64_t units_per_sample() const override { return 1; }
  std::vector<ParameterPart> parameter_parts() const override;
  double flops_per_unit() const override;
  std::string_view flops_formula() const override {
    return "6N + 12LHQT per token, padding not counted";
  }
  std::vector<MemoryItem> memory_items(const Config& config,
                                       const ComputePlace& place) const override;

  /// The vocabulary, and the settings of bert_config.init_from.
  std::map<std::string, std::string> metadata() const override;
  /// Rejects another vocabulary.
  void check_resume(const std::map<std::string, std::string>& metadata,
                    const std::string& snapshot) const override;

 protected:
  /// Throws UserError: the vocabulary's padding is not the one that positions begin after.
  void check_padding(int64_t pad) const;
  /// With lora.rank, after the model has its weights: adapters, and on resume the weights below.
  void adapt(torch::nn::Module& model, std::optional<uint64_t> seed);
  /// Sizes of the model, and its adapters.
  std::vector<std::string> describe_model(const torch::nn::Module& model) const;
  virtual std::vector<ModelParameter> model_parameters() const = 0;
  virtual BertSizes sizes() const = 0;

  // NOLINTBEGIN(misc-non-private-member-variables-in-classes): those of the task that derives
  const Config& config_;
  const bool fresh_;                      // not resumed: bert_config.init_from counts
  std::unique_ptr<Tokenizer> tokenizer_;  // null: none is named; the task's constructor sees to it
                                          // NOLINTEND(misc-non-private-member-variables-in-classes)

 private:
  std::string base_digest_;    // of the weights below adapters; empty: there are none
  std::string base_settings_;  // see base_settings_state(); empty: the run starts from no model
};

}  // namespace ddp::train
