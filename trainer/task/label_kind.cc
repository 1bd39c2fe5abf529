#include "trainer/task/label_kind.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/data/text/label_cells.h"
#include "trainer/metrics/class_scores.h"
#include "trainer/metrics/correlation.h"
#include "trainer/parallel/device/device_wait.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

constexpr int64_t kCountsOfLabel = 3;  // right, actual, answered
constexpr int64_t kSumsOfLabels = 3;   // loss, texts, exact matches

/// The labels' counts, from sums[at].
std::vector<ClassCounts> label_counts(const std::vector<double>& sums, std::size_t at) {
  std::vector<ClassCounts> counts;
  for (; at < sums.size(); at += kCountsOfLabel)
    counts.push_back({sums[at], sums[at + 1], sums[at + 2]});
  return counts;
}

torch::Tensor batch_sums_of(const torch::Tensor& first, const torch::Tensor& counts_K3) {
  return torch::cat(
      {first.to(torch::kFloat32).reshape({-1}), counts_K3.to(torch::kFloat32).reshape({-1})});
}

// One of several classes.

void check_class(const std::string& label, const std::string& /*separator*/) {
  if (label.empty()) throw UserError("its label is empty");
}

torch::Tensor class_targets(const torch::Device& device, int64_t /*labels*/) {
  return torch::zeros({1}, torch::TensorOptions(torch::kInt64).device(device));
}

torch::Tensor class_loss(const torch::Tensor& logits_BK, const torch::Tensor& targets_B,
                         const LossOptions& options) {
  return at::cross_entropy_loss(logits_BK.to(torch::kFloat32), targets_B, options.class_weights_K,
                                at::Reduction::Sum, /*ignore_index=*/-100, options.smoothing);
}

torch::Tensor class_answers(const torch::Tensor& logits_BK) {
  return logits_BK.to(torch::kCPU, torch::kFloat64).softmax(1);
}

BatchSums class_sums(const torch::Tensor& logits_BK, const torch::Tensor& targets,
                     const Labels& labels) {
  const auto loss = to_host(class_loss(logits_BK, targets, {}));
  const auto answers_B = to_host(logits_BK.argmax(1));
  const auto targets_B = to_host(targets);
  const auto classes = static_cast<int64_t>(labels.size());
  const auto right_B = targets_B.index({answers_B.eq(targets_B)});
  const auto counts_K3 =
      torch::stack({right_B.bincount({}, classes), targets_B.bincount({}, classes),
                    answers_B.bincount({}, classes)},
                   1);
  return {batch_sums_of(loss, counts_K3), confusions(targets_B, answers_B, labels)};
}

Metrics class_metrics(const std::vector<double>& sums, const Labels& /*labels*/) {
  const std::vector<ClassCounts> classes = label_counts(sums, 1);
  double texts = 0.0;
  for (const ClassCounts& counts : classes) texts += counts.actual;
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
          {"matthews_correlation", matthews_correlation(classes)},
          {"texts", texts}};
}

// Any number of labels.

void check_labels(const std::string& label, const std::string& separator) {
  labels_in_cell(label, separator);
}

torch::Tensor number_targets(const torch::Device& device, int64_t labels) {
  return torch::zeros({1, labels}, torch::TensorOptions(torch::kFloat32).device(device));
}

/// The mean over the labels for each text, as torch's BCEWithLogitsLoss.
torch::Tensor labels_loss(const torch::Tensor& logits_BK, const torch::Tensor& targets_BK,
                          const LossOptions& /*options*/) {
  return at::binary_cross_entropy_with_logits(logits_BK.to(torch::kFloat32), targets_BK, {}, {},
                                              at::Reduction::Sum) /
         static_cast<double>(targets_BK.size(1));
}

torch::Tensor labels_answers(const torch::Tensor& logits_BK) {
  return logits_BK.to(torch::kCPU, torch::kFloat64).sigmoid();
}

BatchSums labels_sums(const torch::Tensor& logits_BK, const torch::Tensor& targets_BK,
                      const Labels& /*labels*/) {
  const auto loss = to_host(labels_loss(logits_BK, targets_BK, {}));
  const auto actual_BK = to_host(targets_BK).gt(0.5);
  const auto answered_BK = labels_answers(to_host(logits_BK)).gt(0.5);
  const auto exact = actual_BK.eq(answered_BK).all(1).sum();
  const auto texts = torch::full({}, static_cast<double>(actual_BK.size(0)));
  const auto counts_K3 = torch::stack(
      {actual_BK.logical_and(answered_BK).sum(0), actual_BK.sum(0), answered_BK.sum(0)}, 1);
  const auto first =
      torch::stack({loss.reshape({}), texts.to(torch::kFloat32), exact.to(torch::kFloat32)});
  return {batch_sums_of(first, counts_K3), {}};
}

/// Means are over all labels, as scikit-learn's for a matrix of labels.
Metrics labels_metrics(const std::vector<double>& sums, const Labels& labels) {
  const std::vector<ClassCounts> counts = label_counts(sums, kSumsOfLabels);
  const double texts = std::max(1.0, sums[1]);
  double f1 = 0.0;
  for (const ClassCounts& each : counts) f1 += scores_of(each).f1;
  const ClassScores micro = micro_scores(counts);
  Metrics metrics = {{"loss", sums[0] / texts},
                     {"exact_match", sums[2] / texts},
                     {"precision_micro", micro.precision},
                     {"recall_micro", micro.recall},
                     {"f1_micro", micro.f1},
                     {"f1_macro", f1 / static_cast<double>(counts.size())}};
  for (std::size_t k = 0; k < labels.size(); ++k)
    metrics.emplace_back(fmt::format("f1/{}", shown(labels[k])), scores_of(counts[k]).f1);
  metrics.emplace_back("texts", sums[1]);
  return metrics;
}

// A number.

void check_number(const std::string& label, const std::string& separator) {
  check_class(label, separator);
  number_in_cell(label);
}

torch::Tensor number_loss(const torch::Tensor& logits_B1, const torch::Tensor& targets_B1,
                          const LossOptions& /*options*/) {
  return at::mse_loss(logits_B1.to(torch::kFloat32), targets_B1, at::Reduction::Sum);
}

torch::Tensor number_answers(const torch::Tensor& logits_B1) {
  return logits_B1.to(torch::kCPU, torch::kFloat64);
}

/// [B, 2]: the answers and the true numbers.
BatchSums number_sums(const torch::Tensor& logits_B1, const torch::Tensor& targets_B1,
                      const Labels& /*labels*/) {
  return {torch::cat({to_host(logits_B1.to(torch::kFloat32)), to_host(targets_B1)}, 1), {}};
}

Metrics number_metrics(const std::vector<double>& pairs, const Labels& /*labels*/) {
  std::vector<double> answers, truth;
  double squares = 0.0;
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) {
    answers.push_back(pairs[i]);
    truth.push_back(pairs[i + 1]);
    squares += (pairs[i] - pairs[i + 1]) * (pairs[i] - pairs[i + 1]);
  }
  const auto texts = static_cast<double>(answers.size());
  const double mse = squares / std::max(1.0, texts);
  return {{"loss", mse},
          {"mse", mse},
          {"pearson", pearson(answers, truth)},
          {"spearman", spearman(answers, truth)},
          {"texts", texts}};
}

/// In the order of ProblemType.
constexpr LabelKind kKinds[] = {{.keeps_samples = false,
                                 .sums = 1,
                                 .sums_per_label = kCountsOfLabel,
                                 .check = check_class,
                                 .targets = class_targets,
                                 .loss = class_loss,
                                 .answers = class_answers,
                                 .evaluate = class_sums,
                                 .metrics = class_metrics},
                                {.keeps_samples = false,
                                 .sums = kSumsOfLabels,
                                 .sums_per_label = kCountsOfLabel,
                                 .check = check_labels,
                                 .targets = number_targets,
                                 .loss = labels_loss,
                                 .answers = labels_answers,
                                 .evaluate = labels_sums,
                                 .metrics = labels_metrics},
                                {.keeps_samples = true,
                                 .sums = 2,
                                 .sums_per_label = 0,
                                 .check = check_number,
                                 .targets = number_targets,
                                 .loss = number_loss,
                                 .answers = number_answers,
                                 .evaluate = number_sums,
                                 .metrics = number_metrics}};

}  // namespace

const LabelKind& label_kind(ProblemType type) { return kKinds[static_cast<std::size_t>(type)]; }

}  // namespace ddp::train
