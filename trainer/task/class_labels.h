// The classes of a classifier by name: in a snapshot's metadata, in the log, in predictions.
#pragma once

#include <torch/torch.h>

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace ddp::train {

using Labels = std::vector<std::string>;

/// Metadata key: JSON list in the order of the classes.
inline constexpr const char* kLabels = "labels";

std::string labels_json(const Labels& labels);
/// Throws RunError if the metadata have none, or damaged ones.
Labels labels_of(const std::map<std::string, std::string>& metadata);

/// Returns each of `names` once, sorted by value if all are integers, else by their bytes.
Labels sorted_labels(const Labels& names);

/// The class of each name; where no name is a number, also by its key, as in id2label: "0", "1".
std::unordered_map<std::string, int64_t> numbers_of(const Labels& labels);

/// LABEL_0, LABEL_1: what transformers calls classes without names.
bool are_generic(const Labels& labels);

/// "Labels: 2: ham, spam"; of many the first ones.
std::string describe_labels(const Labels& labels);

/// Returns `labels`, or none if they are too many for a confusion matrix.
Labels confusable(const Labels& labels);
/// int64 [K, K]: how often each class was predicted for each; undefined if confusable() has none.
/// `truth_B`, `answers_B`: int64 [B], from 0 to K - 1.
torch::Tensor confusions(const torch::Tensor& truth_B, const torch::Tensor& answers_B,
                         const Labels& labels);

}  // namespace ddp::train
