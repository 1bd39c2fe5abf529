// What a text classifier computes for each bert_config.problem_type: loss, answers, metrics.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/config/model_config.h"
#include "trainer/task/class_labels.h"
#include "trainer/task/task.h"

namespace ddp::train {

/// For classes only.
struct LossOptions {
  torch::Tensor class_weights_K = {};  ///< Undefined: all 1.
  double smoothing = 0.0;
};

/// B texts, K labels. Targets: int64 [B], classes, or float32 [B, K], 0 or 1 or numbers.
struct LabelKind {
  bool keeps_samples;  ///< See Task::keeps_samples().
  int64_t sums;        ///< Task::sums() is `sums` and `sums_per_label` of each label.
  int64_t sums_per_label;

  /// Throws UserError with the reason alone: a row's label that cannot be used.
  void (*check)(const std::string& label, const std::string& separator);
  torch::Tensor (*targets)(const torch::Device& device, int64_t labels);  ///< For one text, all 0.
  /// A float32 scalar, the sum over the texts.
  torch::Tensor (*loss)(const torch::Tensor& logits_BK, const torch::Tensor& targets,
                        const LossOptions& options);
  /// float64 [B, K]: probabilities, or numbers.
  torch::Tensor (*answers)(const torch::Tensor& logits_BK);
  BatchSums (*evaluate)(const torch::Tensor& logits_BK, const torch::Tensor& targets,
                        const Labels& labels);
  Metrics (*metrics)(const std::vector<double>& sums, const Labels& labels);
};

const LabelKind& label_kind(ProblemType type);

/// Whether a probability makes a label one of a text's.
inline bool is_chosen(double probability) { return probability > 0.5; }

}  // namespace ddp::train
