// The tables of a text classifier: rows, labels, and which are for training and for evaluation.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <utility>

#include "trainer/config/config.h"
#include "trainer/data/text/label_cells.h"
#include "trainer/model/pretrained_config.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"
#include "trainer/runtime/with_key.h"
#include "trainer/task/text_classification.h"

namespace ddp::train {
namespace {

constexpr const char* kTrainingTable = "data_config.path";

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

/// Whether `labels` are some of `names`, or of their keys.
bool are_among(const Labels& names, const Labels& labels) {
  const auto numbers = numbers_of(names);
  return std::all_of(labels.begin(), labels.end(),
                     [&](const std::string& label) { return numbers.contains(label); });
}

/// Whether `labels` are the keys of names: 0, 1 of NEGATIVE, POSITIVE.
bool are_keys_of(const Labels& names, const Labels& labels) {
  return names.size() == labels.size() && !are_generic(names) && are_among(names, labels);
}

}  // namespace

TextClassification::TextClassification(const Config& config,
                                       const std::map<std::string, std::string>* metadata)
    : BertTask(config, metadata),
      kind_(label_kind(config.bert.problem_type)),
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
  tokens_ =
      with_key("data_config.tokenizer", [this] { return bert_tokens(*tokenizer_, config_.bert); });
  check_padding(tokens_.pad);
}

/// Why a row cannot be used, or "".
std::string TextClassification::problem_of(const TableRow& row) const {
  if (is_blank(row.text)) return "its text is empty";
  if (has_pairs() && is_blank(row.text_pair)) return "its second text is empty";
  try {
    kind_.check(row.label, config_.data.label_separator);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
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
  return with_key(key, [&] {
    std::vector<TableRow> usable;
    TableColumns columns{config_.data.text_column, config_.data.label_column};
    columns.text_pair = config_.data.text_pair_column;
    columns.label_lists = config_.bert.problem_type == ProblemType::kMultiLabel;
    TableReader reader(path, columns);
    for (TableRow row; next_usable(reader, path, row);) usable.push_back(std::move(row));
    if (usable.empty()) {
      throw UserError(fmt::format("{}: has no row to use{}", path,
                                  left_out_.count() == 0 ? "" : "; " + left_out_.text()));
    }
    return usable;
  });
}

/// None for a number.
Labels TextClassification::labels_of_row(const TableRow& row) const {
  switch (config_.bert.problem_type) {
    case ProblemType::kSingleLabel:
      return {row.label};
    case ProblemType::kMultiLabel:
      return labels_in_cell(row.label, config_.data.label_separator);
    case ProblemType::kRegression:
      break;
  }
  return {};
}

TextTargets TextClassification::targets(const char* key, const std::string& path,
                                        const std::vector<TableRow>& rows) const {
  const auto numbers = numbers_of(labels_);
  TextTargets targets;
  if (!has_classes()) targets.width = std::ssize(labels_);
  targets.values.resize(rows.size() * static_cast<std::size_t>(targets.width));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const TableRow& row = rows[i];
    if (config_.bert.problem_type == ProblemType::kRegression)
      targets.values[i] = number_in_cell(row.label);
    for (const std::string& label : labels_of_row(row)) {
      const auto found = numbers.find(label);
      if (found == numbers.end()) {
        throw UserError(fmt::format(
            "{}: {}:{}: the label {} is not one that the model knows: {}; correct the row, or "
            "train a new model whose training data have this label",
            key, path, row.line, shown(label), shown_list(labels_)));
      }
      const auto number = static_cast<std::size_t>(found->second);
      if (has_classes())
        targets.classes.push_back(found->second);
      else
        targets.values[i * labels_.size() + number] = 1.0F;
    }
  }
  return targets;
}

LabelledTexts TextClassification::encode(std::vector<TableRow> rows, TextTargets targets) const {
  std::vector<std::string> texts, pairs;
  for (TableRow& row : rows) {
    texts.push_back(std::move(row.text));
    if (has_pairs()) pairs.push_back(std::move(row.text_pair));
  }
  const int64_t most = config_.data.block_size - kAroundText;
  if (!has_pairs()) return {TextLines(*tokenizer_, texts, most), std::move(targets)};
  return {TextLines(*tokenizer_, texts, pairs, between_texts(tokens_), most), std::move(targets)};
}

void TextClassification::take_labels(const std::vector<TableRow>& rows) {
  if (!labels_.empty()) return;  // the snapshot's
  PretrainedBert there;
  if (!config_.bert.init_from.empty()) there = read_pretrained_bert(config_.bert.init_from);
  const bool same_kind = there.shape.problem_type == config_.bert.problem_type;
  if (config_.bert.problem_type == ProblemType::kRegression) {
    labels_ = same_kind && there.labels.size() == 1 ? there.labels : Labels{"LABEL_0"};
    return;
  }
  Labels names;
  for (const TableRow& row : rows) {
    for (std::string& label : labels_of_row(row)) names.push_back(std::move(label));
  }
  labels_ = sorted_labels(names);
  similar_labels_ = similar_labels(labels_);
  if (has_classes() ? labels_.size() < 2 : labels_.empty()) {
    throw UserError(
        labels_.empty()
            ? fmt::format("{}: {}: no row has a label", kTrainingTable, config_.data.path)
            : fmt::format("{}: {}: all rows have the label {}; a classifier needs two",
                          kTrainingTable, config_.data.path, shown(labels_.front())));
  }
  // Weights with the same classes determine the order; of several labels the data may lack some.
  const bool theirs =
      has_classes() ? sorted_labels(there.labels) == labels_ || are_keys_of(there.labels, labels_)
                    : same_kind && are_among(there.labels, labels_);
  if (theirs) labels_ = there.labels;
}

void TextClassification::open_training() {
  const DataConfig& data = config_.data;
  auto rows = usable_rows(kTrainingTable, data.path);
  const auto used = static_cast<std::size_t>(static_cast<double>(rows.size()) * data.truncate);
  rows.resize(std::max<std::size_t>(1, used));
  take_labels(rows);
  auto targets = this->targets(kTrainingTable, data.path, rows);
  SampleSplit split = this->split(rows, targets);
  if (!tokenizer_) {
    tokenizer_ = trained_vocabulary(rows, split.training);
    own_vocabulary_ = true;
    take_tokens();
  }
  texts_ = std::make_unique<LabelledTexts>(encode(std::move(rows), std::move(targets)));
  const auto training = static_cast<int64_t>(split.training.size());
  if (training < config_.trainer.batch_size && data.train_split > 0.0) {
    throw UserError(fmt::format(
        "{}: {}: {} rows (truncate {}, train_split {}) leave {} for training, fewer than "
        "trainer_config.batch_size={}; lower that, or give more rows",
        kTrainingTable, data.path, texts_->texts.size(), data.truncate, data.train_split, training,
        config_.trainer.batch_size));
  }
  training_ = std::make_unique<TextSamples>(
      texts_->texts, texts_->targets, std::move(split.training),
      TextSamples::Options{tokens_, data.bucket_batches, config_.trainer.batch_size});
  if (split.evaluation.empty()) return;
  evaluation_ = std::make_unique<TextSamples>(
      texts_->texts, texts_->targets, std::move(split.evaluation), TextSamples::Options{tokens_});
}

/// The same share of each class; where there are none, of all rows.
SampleSplit TextClassification::split(const std::vector<TableRow>& rows,
                                      const TextTargets& targets) const {
  const double share = config_.data.eval_path.empty() ? config_.data.train_split : 1.0;
  if (!has_classes())
    return split_by_label(std::vector<int64_t>(rows.size()), 1, share, split_seed_);
  check_parts(rows, targets.classes);
  return split_by_label(targets.classes, std::ssize(labels_), share, split_seed_);
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
  auto targets = this->targets(key, path, rows);
  texts = std::make_unique<LabelledTexts>(encode(std::move(rows), std::move(targets)));
  return std::make_unique<TextSamples>(texts->texts, texts->targets,
                                       numbers_below(texts->texts.size()),
                                       TextSamples::Options{tokens_});
}

std::vector<std::string> TextClassification::take_warnings() {
  const auto similar = std::exchange(similar_labels_, {});
  if (similar.empty()) return {};
  return {fmt::format(
      "{}: {}: the labels {} differ in spaces or capitals alone and are classes of their own; "
      "correct the rows if they mean the same",
      kTrainingTable, config_.data.path, shown_list(similar))};
}

}  // namespace ddp::train
