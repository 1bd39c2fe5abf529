// Text classification: BERT's encoder, pooler and classifier on the texts of a table.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/data/text/table_file.h"
#include "trainer/data/text/text_lines.h"
#include "trainer/data/text/text_samples.h"
#include "trainer/metrics/class_scores.h"
#include "trainer/model/bert/bert_classifier.h"
#include "trainer/task/bert_task.h"
#include "trainer/task/class_labels.h"
#include "trainer/task/task.h"
#include "trainer/tokenizer/tokenizer.h"

namespace ddp::train {

/// See make_task().
std::unique_ptr<Task> make_text_classification(const Config& config,
                                               const std::map<std::string, std::string>* metadata);

/// Metadata key of the seed that divides a table's rows into training and evaluation.
inline constexpr const char* kSplitSeed = "split_seed";

/// The texts of a table, encoded, with the numbers of their labels.
struct LabelledTexts {
  TextLines texts;
  std::vector<int64_t> labels;
};

class TextClassification : public BertTask {
 public:
  TextClassification(const Config& config, const std::map<std::string, std::string>* metadata);

  const SampleSource& training() const override { return *training_; }
  const SampleSource* evaluation() const override { return evaluation_.get(); }
  const SampleSource* test() const override { return test_.get(); }

  void build_model(torch::Device device, std::optional<uint64_t> seed) override;
  torch::nn::Module& model() override { return *model_; }

  /// Weighted by bert_config.class_weights.
  torch::Tensor loss(const Batch& batch) override;
  torch::Tensor smallest_loss() override;
  /// Negative log-likelihood in nats, without class weights; then of each class ClassCounts.
  BatchSums evaluate(const Batch& batch) override;
  int64_t sums() const override;
  std::vector<std::string> classes() const override { return confusable(labels_); }
  /// loss (nats per text), accuracy, precision, recall, f1, f1_macro, f1_micro, texts. The third to
  /// fifth are of two classes those of the second one, of more the means over the classes.
  Metrics metrics(const std::vector<double>& sums) const override;
  std::vector<std::string> metric_names() const override;

  std::string_view unit() const override { return "texts"; }

  std::map<std::string, std::string> metadata() const override;
  std::vector<std::string> describe() const override;
  std::vector<std::string> describe_data() const override;
  LengthCounts lengths() const override { return texts_->texts.lengths(); }
  std::vector<std::string> take_warnings() override;
  std::string next_command(const std::string& snapshot) const override {
    return "trainer predict --snapshot " + snapshot + " --text TEXT";
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
  void take_tokens();
  std::vector<int64_t> label_numbers(const char* key, const std::string& path,
                                     const std::vector<TableRow>& rows) const;
  LabelledTexts encode(std::vector<TableRow> rows, std::vector<int64_t> labels) const;
  void take_labels(const std::vector<TableRow>& rows);
  void open_training();
  std::unique_ptr<TextSamples> open_part(const char* key, const std::string& path,
                                         std::unique_ptr<LabelledTexts>& texts);
  void check_parts(const std::vector<TableRow>& rows, const std::vector<int64_t>& labels) const;
  std::vector<double> class_weights() const;
  bool is_last_layer(const std::string& parameter) const;
  void take_pretrained();
  double share_of_most_frequent() const;

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
  torch::Tensor class_weights_;  // not defined: all 1
  BertForSequenceClassification model_{nullptr};
};

}  // namespace ddp::train
