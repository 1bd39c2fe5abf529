// Text classification: BERT's encoder, pooler and classifier on the texts of a table, or pairs of
// them; what is learned of each follows from bert_config.problem_type.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trainer/data/text/table_file.h"
#include "trainer/data/text/text_lines.h"
#include "trainer/data/text/text_samples.h"
#include "trainer/model/bert/bert_classifier.h"
#include "trainer/task/bert_task.h"
#include "trainer/task/class_labels.h"
#include "trainer/task/label_kind.h"
#include "trainer/task/task.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

struct Config;

/// Metadata key of the seed that divides a table's rows into training and evaluation.
inline constexpr const char* kSplitSeed = "split_seed";

/// The texts of a table, encoded, with their labels.
struct LabelledTexts {
  TextLines texts;
  TextTargets targets;
};

class TextClassification : public BertTask {
 public:
  TextClassification(const Config& config, const std::map<std::string, std::string>* metadata);

  const SampleSource& training() const override { return *training_; }
  const SampleSource* evaluation() const override { return evaluation_.get(); }
  const SampleSource* test() const override { return test_.get(); }

  void build_model(torch::Device device, std::optional<uint64_t> seed) override;
  torch::nn::Module& model() override { return *model_; }

  torch::Tensor loss(const Batch& batch) override;
  torch::Tensor smallest_loss() override;
  BatchSums evaluate(const Batch& batch) override;
  int64_t sums() const override;
  bool keeps_samples() const override { return kind_.keeps_samples; }
  std::vector<std::string> classes() const override {
    return has_classes() ? confusable(labels_) : Labels();
  }
  Metrics metrics(const std::vector<double>& sums) const override {
    return kind_.metrics(sums, labels_);
  }
  std::vector<std::string> metric_names() const override;

  std::string_view unit() const override { return "texts"; }

  std::map<std::string, std::string> metadata() const override;
  std::vector<std::string> describe() const override;
  std::vector<std::string> describe_data() const override;
  LengthCounts lengths() const override { return texts_->texts.lengths(); }
  std::vector<std::string> take_warnings() override;
  std::string next_command(const std::string& snapshot) const override {
    return "trainer predict --snapshot " + snapshot + " --text TEXT" +
           (has_pairs() ? " --text_pair TEXT" : "");
  }

 protected:
  std::vector<ModelParameter> model_parameters() const override {
    return model_->model_parameters();
  }
  BertSizes sizes() const override;

 private:
  bool next_usable(TableReader& reader, const std::string& path, TableRow& row);
  /// Returns the usable rows of a table. Throws UserError.
  std::vector<TableRow> usable_rows(const char* key, const std::string& path);
  bool has_classes() const;
  bool has_pairs() const;
  std::string problem_of(const TableRow& row) const;
  Labels labels_of_row(const TableRow& row) const;
  void take_tokens();
  TextTargets targets(const char* key, const std::string& path,
                      const std::vector<TableRow>& rows) const;
  LabelledTexts encode(std::vector<TableRow> rows, TextTargets targets) const;
  void take_labels(const std::vector<TableRow>& rows);
  SampleSplit split(const std::vector<TableRow>& rows, const TextTargets& targets) const;
  void open_training();
  std::unique_ptr<TextSamples> open_part(const char* key, const std::string& path,
                                         std::unique_ptr<LabelledTexts>& texts);
  void check_parts(const std::vector<TableRow>& rows, const std::vector<int64_t>& labels) const;
  std::vector<double> class_weights() const;
  bool is_last_layer(const std::string& parameter) const;
  void take_pretrained();
  torch::Tensor logits(const Batch& batch);
  std::string describe_targets() const;
  double share_of_most_frequent() const;

  const LabelKind& kind_;
  const uint64_t split_seed_;    // that of the run's beginning, whatever a resume is given
  bool own_vocabulary_ = false;  // trained here, on the training texts
  BertTokens tokens_;
  Labels labels_;
  LeftOut left_out_;
  std::vector<std::string> similar_labels_;  // to warn about
  std::string start_;                        // the source of the weights
  std::unique_ptr<LabelledTexts> texts_;
  std::unique_ptr<LabelledTexts> evaluation_texts_;  // null: a part of texts_
  std::unique_ptr<LabelledTexts> test_texts_;
  std::unique_ptr<TextSamples> training_;
  std::unique_ptr<TextSamples> evaluation_;  // null: none
  std::unique_ptr<TextSamples> test_;
  LossOptions loss_options_;
  BertForSequenceClassification model_{nullptr};
};

}  // namespace ddp::train
