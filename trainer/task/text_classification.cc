#include "trainer/task/text_classification.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "trainer/config/config.h"
#include "trainer/interop/pretrained_weights.h"
#include "trainer/metrics/text.h"
#include "trainer/model/bert_family.h"
#include "trainer/model/pretrained_config.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {

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
  model_ = BertForSequenceClassification(config_.bert, tokenizer_->size(), config_.positions(),
                                         static_cast<int64_t>(labels_.size()), seed.value_or(0));
  if (fresh_ && !config_.bert.init_from.empty()) take_pretrained();
  adapt(*model_, seed);
  const std::string& trained =
      config_.prompt_tuning.enabled() ? config_.prompt_tuning.init_from : config_.lora.init_from;
  if (fresh_ && !trained.empty())
    start_ += fmt::format("; a classifier in {} is taken for the labels {}, in this order", trained,
                          fmt::join(labels_, ", "));
  loss_options_.smoothing = config_.trainer.label_smoothing;
  const auto weights = class_weights();
  if (!weights.empty())
    loss_options_.class_weights_K =
        torch::tensor(weights, torch::TensorOptions(torch::kFloat32).device(device));
  model_->to(device);
  model_->train();
}

bool TextClassification::is_last_layer(const std::string& parameter) const {
  return parameter.starts_with(std::string(traits_of(config_.bert.family).classifier) + ".");
}

/// The classifier as well where it has the same classes.
void TextClassification::take_pretrained() {
  const PretrainedBert there = read_pretrained_bert(config_.bert.init_from);
  const bool same = there.shape.problem_type == config_.bert.problem_type &&
                    (there.labels == labels_ ||
                     (are_generic(there.labels) && there.labels.size() == labels_.size()));
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
  if (there.classifier_pdrop != there.shape.hidden_pdrop &&
      there.classifier_pdrop != config_.bert.hidden_pdrop)
    start_ += fmt::format(
        "; dropout before the classifier: {} (bert_config.hidden_pdrop), not the folder's {}",
        config_.bert.hidden_pdrop, there.classifier_pdrop);
}

bool TextClassification::has_classes() const {
  return config_.bert.problem_type == ProblemType::kSingleLabel;
}

bool TextClassification::has_pairs() const { return !config_.data.text_pair_column.empty(); }

torch::Tensor TextClassification::logits(const Batch& batch) {
  return model_(batch[kInputs], batch[kAttentionMask], batch.find(kTokenTypes));
}

torch::Tensor TextClassification::loss(const Batch& batch) {
  const auto sum = kind_.loss(logits(batch), batch[kTargets], loss_options_);
  return sum / static_cast<double>(std::max<int64_t>(1, batch.target_count));
}

torch::Tensor TextClassification::smallest_loss() {
  const auto device = model_->parameters().front().device();
  const auto options = torch::TensorOptions(torch::kInt64).device(device);
  const auto tokens_BT = torch::full({1, kAroundText}, tokens_.last, options);
  const auto seen_BT = torch::ones({1, kAroundText}, options.dtype(torch::kBool));
  const bool typed = has_pairs() && tokens_.typed_pairs;
  const auto logits_BK =
      model_(tokens_BT, seen_BT, typed ? torch::zeros_like(tokens_BT) : torch::Tensor());
  return kind_.loss(logits_BK, kind_.targets(device, std::ssize(labels_)), loss_options_);
}

BatchSums TextClassification::evaluate(const Batch& batch) {
  return kind_.evaluate(logits(batch), batch[kTargets], labels_);
}

int64_t TextClassification::sums() const {
  return kind_.sums + kind_.sums_per_label * std::ssize(labels_);
}

std::vector<std::string> TextClassification::metric_names() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : metrics(std::vector<double>(static_cast<std::size_t>(sums()))))
    names.push_back(name);
  return names;
}

BertSizes TextClassification::sizes() const {
  BertSizes sizes = bert_sizes(texts_->texts, config_.positions(), tokenizer_->size());
  sizes.longest_row += config_.prompt_tuning.tokens;
  sizes.mean_row += static_cast<double>(config_.prompt_tuning.tokens);
  sizes.classes = static_cast<int64_t>(labels_.size());
  return sizes;
}

std::map<std::string, std::string> TextClassification::metadata() const {
  auto metadata = BertTask::metadata();
  metadata.emplace(kLabels, labels_json(labels_));
  metadata.emplace(kSplitSeed, fmt::to_string(split_seed_));
  return metadata;
}

std::string TextClassification::describe_targets() const {
  if (config_.bert.problem_type != ProblemType::kRegression) return describe_labels(labels_);
  const auto [least, most] =
      std::minmax_element(texts_->targets.values.begin(), texts_->targets.values.end());
  return fmt::format("Labels: numbers from {} to {}", *least, *most);
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
      describe_targets()};
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
  if (evaluation_ && has_classes()) {
    lines.push_back(fmt::format(
        "Guessing: the most frequent label would be right about {:.4f} of the evaluation",
        share_of_most_frequent()));
  }
  return lines;
}

}  // namespace ddp::train
