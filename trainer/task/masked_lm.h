// Masked language modelling: BERT on lines of a text, the hidden tokens as the targets.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/left_out.h"
#include "trainer/data/text/masked_lines.h"
#include "trainer/data/text/text_lines.h"
#include "trainer/model/bert/bert.h"
#include "trainer/task/bert_task.h"
#include "trainer/task/task.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

struct Config;

class MaskedLm : public BertTask {
 public:
  MaskedLm(const Config& config, const std::map<std::string, std::string>* metadata);

  const SampleSource& training() const override { return *training_; }
  const SampleSource* evaluation() const override { return source_of(evaluation_); }
  const SampleSource* test() const override { return source_of(test_); }

  void build_model(torch::Device device, std::optional<uint64_t> seed) override;
  torch::nn::Module& model() override { return *model_; }

  /// The mean over the hidden tokens only.
  torch::Tensor loss(const Batch& batch) override;
  torch::Tensor smallest_loss() override;
  /// Negative log-likelihood in nats, hidden tokens that were the most likely ones, hidden tokens.
  BatchSums evaluate(const Batch& batch) override;
  int64_t sums() const override { return 3; }
  /// loss (nats per hidden token), masked_accuracy, masked_tokens.
  Metrics metrics(const std::vector<double>& sums) const override;
  std::vector<std::string> metric_names() const override;

  std::string_view unit() const override { return "lines"; }

  std::vector<std::string> describe() const override;
  std::vector<std::string> describe_data() const override;
  LengthCounts lengths() const override { return lines_->lengths(); }
  std::string next_command(const std::string& snapshot) const override {
    return "trainer predict --snapshot " + snapshot + " --text \"The " +
           token_names_of(*tokenizer_).mask + " ran\"";
  }

 protected:
  std::vector<ModelParameter> model_parameters() const override {
    return model_->model_parameters();
  }
  BertSizes sizes() const override;

 private:
  /// Lines and the samples that are made of them.
  struct Part {
    std::unique_ptr<TextLines> lines;
    std::unique_ptr<MaskedLines> samples;
  };
  static const SampleSource* source_of(const Part& part);
  std::unique_ptr<TextLines> read_lines(const char* key, const std::string& path,
                                        double share = 1.0);
  Part open_part(const char* key, const std::string& path);
  void open_training();
  [[noreturn]] void refuse_lines() const;
  std::string left_out_note() const;
  MaskingOptions masking(bool every_epoch_anew) const;
  torch::Tensor hidden_logits(const Batch& batch);
  double share_of_most_frequent(const MaskedLines& samples) const;

  MaskingTokens tokens_;
  LeftOut left_out_;
  std::unique_ptr<TextLines> lines_;  // of data_config.path
  std::unique_ptr<MaskedLines> training_;
  Part evaluation_;  // without lines where they are a part of lines_
  Part test_;
  BertForMaskedLm model_{nullptr};
};

/// [PAD], [CLS], [SEP] and [MASK] of a vocabulary. Throws UserError listing what it lacks.
MaskingTokens masking_tokens(const Tokenizer& tokenizer);

}  // namespace ddp::train
