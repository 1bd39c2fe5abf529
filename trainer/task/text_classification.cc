#include "trainer/task/text_classification.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <utility>

#include "trainer/data/text/stratified_split.h"
#include "trainer/interop/pretrained_weights.h"
#include "trainer/metrics/text.h"
#include "trainer/model/bert_family.h"
#include "trainer/model/pretrained_config.h"
#include "trainer/parallel/device/device_wait.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

constexpr const char* kTrainingTable = "data_config.path";
constexpr int64_t kSumsOfClass = 3;  // right, actual, answered

/// Why a row cannot be used, or "".
std::string problem_of(const TableRow& row) {
  if (row.label.empty()) return "its label is empty";
  if (is_blank(row.text)) return "its text is empty";
  return "";
}

/// The seed that the evaluation's rows are drawn by: for the whole run the one that it began with.
uint64_t split_seed_of(const Config& config, const std::map<std::string, std::string>* metadata) {
  if (metadata == nullptr) return static_cast<uint64_t>(config.trainer.seed);
  const auto found = metadata->find(kSplitSeed);
  if (found == metadata->end()) return static_cast<uint64_t>(config.trainer.seed);  // exported
  const std::string& digits = found->second;
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seed);
  if (error == std::errc{} && end == digits.data() + digits.size()) return seed;
  throw RunError(fmt::format("damaged {} in the snapshot: '{}'", kSplitSeed, digits));
}

/// Labels that differ in capitals or in spaces around them alone, such as pos and " pos".
std::vector<std::string> similar_labels(const Labels& labels) {
  std::map<std::string, std::string> seen;
  std::vector<std::string> similar;
  for (const std::string& label : labels) {
    const std::size_t first = std::min(label.find_first_not_of(" \t\r\n"), label.size());
    std::string plain = label.substr(first, label.find_last_not_of(" \t\r\n") + 1 - first);
    std::transform(plain.begin(), plain.end(), plain.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    const auto [other, fresh] = seen.emplace(std::move(plain), label);
    if (fresh) continue;
    similar.push_back(fmt::format("'{}' and '{}'", shown(other->second), shown(label)));
  }
  return similar;
}

std::vector<int64_t> counts_of(const std::vector<int64_t>& labels, std::size_t classes) {
  std::vector<int64_t> counts(classes);
  for (const int64_t label : labels) ++counts[static_cast<std::size_t>(label)];
  return counts;
}

std::vector<int64_t> numbers_below(int64_t end) {
  std::vector<int64_t> numbers(static_cast<std::size_t>(end));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

/// LABEL_0, LABEL_1: what transformers calls classes without names.
bool are_generic(const Labels& labels) {
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] != fmt::format("LABEL_{}", i)) return false;
  }
  return true;
}

/// Whether `labels` are the keys of names: 0, 1 of NEGATIVE, POSITIVE.
bool are_keys_of(const Labels& names, const Labels& labels) {
  const auto numbers = numbers_of(names);
  return names.size() == labels.size() && !are_generic(names) &&
         std::all_of(labels.begin(), labels.end(),
                     [&](const std::string& label) { return numbers.contains(label); });
}

torch::Tensor summed_loss(const torch::Tensor& logits_BK, const torch::Tensor& targets_B,
                          const torch::Tensor& weights_K = {}, double smoothing = 0.0) {
  return at::cross_entropy_loss(logits_BK.to(torch::kFloat32), targets_B, weights_K,
                                at::Reduction::Sum, /*ignore_index=*/-100, smoothing);
}

}  // namespace

TextClassification::TextClassification(const Config& config,
                                       const std::map<std::string, std::string>* metadata)
    : BertTask(config, metadata),
      split_seed_(split_seed_of(config, metadata)),
      left_out_(config.data.on_bad_sample) {
  if (tokenizer_) take_tokens();
  if (metadata != nullptr) labels_ = labels_of(*metadata);
  open_training();
  if (!config.data.eval_path.empty())
    evaluation_ = open_part("data_config.eval_path", config.data.eval_path, evaluation_texts_);
  if (!config.data.test_path.empty())
    test_ = open_part("data_config.test_path", config.data.test_path, test_texts_);
}

void TextClassification::take_tokens() {
  try {
    tokens_ = bert_tokens(*tokenizer_);
  } catch (const UserError& error) {
    throw UserError(fmt::format("data_config.tokenizer: {}", error.what()));
  }
  check_padding(tokens_.pad);
}

bool TextClassification::next_usable(TableReader& reader, const std::string& path, TableRow& row) {
  while (true) {
    std::string what;
    try {
      if (!reader.next(row)) return false;
      what = problem_of(row);
      if (what.empty()) return true;
      what = fmt::format("{}:{}: {}", path, row.line, what);
    } catch (const BrokenFileError&) {
      throw;
    } catch (const UserError& error) {
      what = error.what();
    }
    left_out_.found(what);
  }
}

std::vector<TableRow> TextClassification::usable_rows(const char* key, const std::string& path) {
  require_row_file(key, path);
  std::vector<TableRow> usable;
  try {
    TableReader reader(path, {config_.data.text_column, config_.data.label_column});
    for (TableRow row; next_usable(reader, path, row);) usable.push_back(std::move(row));
    if (usable.empty()) {
      throw UserError(fmt::format("{}: has no row to use{}", path,
                                  left_out_.count() == 0 ? "" : "; " + left_out_.text()));
    }
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: {}", key, error.what()));
  }
  return usable;
}

std::vector<int64_t> TextClassification::label_numbers(const char* key, const std::string& path,
                                                       const std::vector<TableRow>& rows) const {
  const auto numbers = numbers_of(labels_);
  std::vector<int64_t> labels;
  for (const TableRow& row : rows) {
    const auto found = numbers.find(row.label);
    if (found == numbers.end()) {
      throw UserError(fmt::format(
          "{}: {}:{}: the label {} is not one that the model knows: {}; correct the row, or "
          "train a new model whose training data have this label",
          key, path, row.line, shown(row.label), shown_list(labels_)));
    }
    labels.push_back(found->second);
  }
  return labels;
}

LabelledTexts TextClassification::encode(std::vector<TableRow> rows,
                                         std::vector<int64_t> labels) const {
  std::vector<std::string> texts;
  for (TableRow& row : rows) texts.push_back(std::move(row.text));
  return {TextLines(*tokenizer_, texts, config_.data.block_size - kAroundText), std::move(labels)};
}

void TextClassification::take_labels(const std::vector<TableRow>& rows) {
  if (!labels_.empty()) return;  // the snapshot's
  Labels names;
  for (const TableRow& row : rows) names.push_back(row.label);
  labels_ = sorted_labels(names);
  similar_labels_ = similar_labels(labels_);
  if (labels_.size() < 2) {
    throw UserError(fmt::format("{}: {}: all rows have the label {}; a classifier needs two",
                                kTrainingTable, config_.data.path, shown(labels_.front())));
  }
  // Weights with the same classes determine the order.
  if (config_.bert.init_from.empty()) return;
  const Labels theirs = read_pretrained_bert(config_.bert.init_from).labels;
  if (sorted_labels(theirs) == labels_ || are_keys_of(theirs, labels_)) labels_ = theirs;
}

void TextClassification::open_training() {
  const DataConfig& data = config_.data;
  auto rows = usable_rows(kTrainingTable, data.path);
  const auto used = static_cast<std::size_t>(static_cast<double>(rows.size()) * data.truncate);
  rows.resize(std::max<std::size_t>(1, used));
  take_labels(rows);
  auto labels = label_numbers(kTrainingTable, data.path, rows);
  check_parts(rows, labels);
  SampleSplit split = split_by_label(labels, static_cast<int64_t>(labels_.size()),
                                     data.eval_path.empty() ? data.train_split : 1.0, split_seed_);
  if (!tokenizer_) {
    tokenizer_ = trained_vocabulary(rows, split.training);
    own_vocabulary_ = true;
    take_tokens();
  }
  texts_ = std::make_unique<LabelledTexts>(encode(std::move(rows), std::move(labels)));
  const auto training = static_cast<int64_t>(split.training.size());
  if (training < config_.trainer.batch_size && data.train_split > 0.0) {
    throw UserError(fmt::format(
        "{}: {}: {} rows (truncate {}, train_split {}) leave {} for training, fewer than "
        "trainer_config.batch_size={}; lower that, or give more rows",
        kTrainingTable, data.path, texts_->texts.size(), data.truncate, data.train_split, training,
        config_.trainer.batch_size));
  }
  training_ = std::make_unique<TextSamples>(
      texts_->texts, texts_->labels, std::move(split.training),
      TextSamples::Options{tokens_, data.bucket_batches, config_.trainer.batch_size});
  if (split.evaluation.empty()) return;
  evaluation_ = std::make_unique<TextSamples>(
      texts_->texts, texts_->labels, std::move(split.evaluation), TextSamples::Options{tokens_});
}

/// A class needs a row in each part.
void TextClassification::check_parts(const std::vector<TableRow>& rows,
                                     const std::vector<int64_t>& labels) const {
  const DataConfig& data = config_.data;
  const bool split = data.eval_path.empty() && data.train_split > 0.0 && data.train_split < 1.0;
  if (!split) return;
  const auto counts = counts_of(labels, labels_.size());
  const auto alone = std::find(counts.begin(), counts.end(), 1);
  if (alone == counts.end()) return;
  const auto at = std::find(labels.begin(), labels.end(), alone - counts.begin());
  throw UserError(fmt::format(
      "{}: {}: of {} rows only that at line {} has the label {}, which training and evaluation "
      "both need; add a row, remove this one, or set data_config.eval_path or train_split=1",
      kTrainingTable, data.path, rows.size(),
      rows[static_cast<std::size_t>(at - labels.begin())].line,
      shown(labels_[static_cast<std::size_t>(alone - counts.begin())])));
}

std::unique_ptr<TextSamples> TextClassification::open_part(const char* key, const std::string& path,
                                                           std::unique_ptr<LabelledTexts>& texts) {
  auto rows = usable_rows(key, path);
  auto labels = label_numbers(key, path, rows);
  texts = std::make_unique<LabelledTexts>(encode(std::move(rows), std::move(labels)));
  return std::make_unique<TextSamples>(texts->texts, texts->labels,
                                       numbers_below(texts->texts.size()),
                                       TextSamples::Options{tokens_});
}

std::vector<double> TextClassification::class_weights() const {
  const ClassWeights& given = config_.bert.class_weights;
  if (!given.balanced) {
    if (given.values.empty() || given.values.size() == labels_.size()) return given.values;
    throw UserError(
        fmt::format("bert_config.class_weights: {} numbers for {} labels ({}); give one for each",
                    given.values.size(), labels_.size(), shown_list(labels_)));
  }
  std::vector<int64_t> counts(labels_.size());
  for (int64_t i = 0; i < training_->size(); ++i)
    ++counts[static_cast<std::size_t>(training_->label(i))];
  std::vector<double> weights;
  for (const int64_t count : counts) {
    const double even = static_cast<double>(training_->size()) / static_cast<double>(counts.size());
    weights.push_back(even / static_cast<double>(std::max<int64_t>(1, count)));
  }
  return weights;
}

void TextClassification::build_model(torch::Device device, std::optional<uint64_t> seed) {
  if (fresh_ && !config_.bert.init_from.empty()) {
    auto shapes = bert_parameter_shapes(config_.bert, sizes());
    std::erase_if(shapes, [this](const auto& each) { return is_last_layer(each.name); });
    check_pretrained(config_.bert.init_from, kBertClassifierLayout, shapes);
  }
  model_ = BertForSequenceClassification(config_.bert, tokenizer_->size(), config_.data.block_size,
                                         static_cast<int64_t>(labels_.size()), seed.value_or(0));
  if (fresh_ && !config_.bert.init_from.empty()) take_pretrained();
  adapt(*model_, seed);
  const auto weights = class_weights();
  if (!weights.empty())
    class_weights_ = torch::tensor(weights, torch::TensorOptions(torch::kFloat32).device(device));
  model_->to(device);
  model_->train();
}

bool TextClassification::is_last_layer(const std::string& parameter) const {
  return parameter.starts_with(std::string(traits_of(config_.bert.family).classifier) + ".");
}

/// The classifier as well where it has the same classes.
void TextClassification::take_pretrained() {
  const Labels theirs = read_pretrained_bert(config_.bert.init_from).labels;
  const bool same = theirs == labels_ || (are_generic(theirs) && theirs.size() == labels_.size());
  auto weights = named_tensors(model_->model_parameters());
  if (!same) {
    std::erase_if(weights, [this](const NamedTensor& w) { return is_last_layer(w.name); });
  }
  const auto absent = load_pretrained(config_.bert.init_from, kBertClassifierLayout, weights);
  const bool pooler = std::all_of(absent.begin(), absent.end(),
                                  [this](const std::string& name) { return is_last_layer(name); });
  start_ = fmt::format("Weights: those of {}; initialized at random: {}", config_.bert.init_from,
                       same     ? "none"
                       : pooler ? "classifier"
                                : "pooler and classifier");
}

torch::Tensor TextClassification::loss(const Batch& batch) {
  const auto sum = summed_loss(model_(batch[kInputs], batch[kAttentionMask]), batch[kTargets],
                               class_weights_, config_.trainer.label_smoothing);
  return sum / static_cast<double>(std::max<int64_t>(1, batch.target_count));
}

torch::Tensor TextClassification::smallest_loss() {
  const auto device = model_->parameters().front().device();
  const auto options = torch::TensorOptions(torch::kInt64).device(device);
  const auto tokens_BT = torch::full({1, kAroundText}, tokens_.last, options);
  const auto seen_BT = torch::ones({1, kAroundText}, options.dtype(torch::kBool));
  return summed_loss(model_(tokens_BT, seen_BT), torch::zeros({1}, options), class_weights_);
}

BatchSums TextClassification::evaluate(const Batch& batch) {
  const auto logits_BK = model_(batch[kInputs], batch[kAttentionMask]);
  const auto loss = to_host(summed_loss(logits_BK, batch[kTargets]));
  const auto answers_B = to_host(logits_BK.argmax(1));
  const auto targets_B = to_host(batch[kTargets]);
  const auto classes = static_cast<int64_t>(labels_.size());
  const auto right_B = targets_B.index({answers_B.eq(targets_B)});
  const auto counts = torch::stack({right_B.bincount({}, classes), targets_B.bincount({}, classes),
                                    answers_B.bincount({}, classes)},
                                   1);
  return {torch::cat({loss.reshape({1}), counts.to(torch::kFloat32).reshape({-1})}),
          confusions(targets_B, answers_B, labels_)};
}

int64_t TextClassification::sums() const {
  return 1 + kSumsOfClass * static_cast<int64_t>(labels_.size());
}

Metrics TextClassification::metrics(const std::vector<double>& sums) const {
  std::vector<ClassCounts> classes;
  double texts = 0.0;
  for (std::size_t at = 1; at < sums.size(); at += kSumsOfClass) {
    classes.push_back({sums[at], sums[at + 1], sums[at + 2]});
    texts += classes.back().actual;
  }
  const ClassScores macro = macro_scores(classes);
  const ClassScores micro = micro_scores(classes);
  const ClassScores chief = classes.size() == 2 ? scores_of(classes.back()) : macro;
  return {{"loss", sums[0] / std::max(1.0, texts)},
          {"accuracy", micro.recall},
          {"precision", chief.precision},
          {"recall", chief.recall},
          {"f1", chief.f1},
          {"f1_macro", macro.f1},
          {"f1_micro", micro.f1},
          {"texts", texts}};
}

std::vector<std::string> TextClassification::metric_names() const {
  return {"loss", "accuracy", "precision", "recall", "f1", "f1_macro", "f1_micro", "texts"};
}

BertSizes TextClassification::sizes() const {
  BertSizes sizes = bert_sizes(texts_->texts, config_.data.block_size, tokenizer_->size());
  sizes.classes = static_cast<int64_t>(labels_.size());
  return sizes;
}

std::map<std::string, std::string> TextClassification::metadata() const {
  auto metadata = BertTask::metadata();
  metadata.emplace(kLabels, labels_json(labels_));
  metadata.emplace(kSplitSeed, fmt::to_string(split_seed_));
  return metadata;
}

std::vector<std::string> TextClassification::take_warnings() {
  const auto similar = std::exchange(similar_labels_, {});
  if (similar.empty()) return {};
  return {fmt::format(
      "{}: {}: the labels {} differ in spaces or capitals alone and are classes of their own; "
      "correct the rows if they mean the same",
      kTrainingTable, config_.data.path, shown_list(similar))};
}

double TextClassification::share_of_most_frequent() const {
  std::vector<int64_t> counts(labels_.size());
  for (int64_t i = 0; i < evaluation_->size(); ++i)
    ++counts[static_cast<std::size_t>(evaluation_->label(i))];
  return static_cast<double>(*std::max_element(counts.begin(), counts.end())) /
         static_cast<double>(evaluation_->size());
}

std::vector<std::string> TextClassification::describe() const {
  std::vector<std::string> lines = describe_model(*model_);
  for (std::string& line : describe_data()) lines.push_back(std::move(line));
  return lines;
}

std::vector<std::string> TextClassification::describe_data() const {
  const auto texts_in = [](const auto& part) { return part ? part->size() : 0; };
  std::vector<std::string> lines = {
      fmt::format("Data: {}: {}, {} tokens, {} in the vocabulary; texts for training {}, "
                  "evaluation {}, test {}",
                  config_.data.path, counted(texts_->texts.size(), "text"), texts_->texts.tokens(),
                  tokenizer_->size(), training_->size(), texts_in(evaluation_), texts_in(test_)),
      describe_labels(labels_)};
  if (!start_.empty()) lines.push_back(start_);
  if (own_vocabulary_) {
    lines.push_back(fmt::format(
        "Vocabulary: WordPiece, {} tokens, trained on the training texts; data_config.tokenizer "
        "names another one",
        tokenizer_->size()));
  }
  if (split_seed_ != static_cast<uint64_t>(config_.trainer.seed) && evaluation_ &&
      config_.data.eval_path.empty()) {
    lines.push_back(fmt::format(
        "Evaluation: the rows that seed {} chose when the run began; trainer_config.seed={} does "
        "not move them",
        split_seed_, config_.trainer.seed));
  }
  if (left_out_.count() > 0) {
    lines.push_back(fmt::format("Left out: {}: {}{}", counted(left_out_.count(), "row"),
                                fmt::join(left_out_.first(), "; "),
                                left_out_.count() > std::ssize(left_out_.first()) ? "; ..." : ""));
  }
  if (evaluation_) {
    lines.push_back(fmt::format(
        "Guessing: the most frequent label would be right about {:.4f} of the evaluation",
        share_of_most_frequent()));
  }
  return lines;
}

std::unique_ptr<Task> make_text_classification(const Config& config,
                                               const std::map<std::string, std::string>* metadata) {
  return std::make_unique<TextClassification>(config, metadata);
}

}  // namespace ddp::train
