// A classifier's confusion matrix: counts by true and by predicted class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/metrics/class_scores.h"

namespace ddp::train {

struct ConfusionMatrix {
  std::vector<std::string> labels;
  std::vector<int64_t> counts;  ///< Row by row, labels() x labels(): rows true, columns predicted.

  bool empty() const { return labels.empty(); }
  std::size_t size() const { return labels.size(); }
  int64_t at(std::size_t actual, std::size_t predicted) const {
    return counts[actual * size() + predicted];
  }
  ClassCounts of_class(std::size_t k) const;
};

/// No matrix is recorded above this number of classes, for lack of space on a page.
inline constexpr std::size_t kMostConfusionClasses = 256;

/// Returns at most `most` (at least 2) rows and columns: the classes most often confused, in either
/// direction, in their order; the last row and column sum up the others.
ConfusionMatrix abbreviated(const ConfusionMatrix& matrix, std::size_t most);

/// Rows and columns with recall and precision, for a terminal.
std::string confusion_table(const ConfusionMatrix& matrix);

/// {"labels":["a","b"],"counts":[[3,0],[1,2]]}: without the braces, as a part of a line.
std::string confusion_members(const ConfusionMatrix& matrix);
/// Parses such a line; returns an empty matrix if it holds none, or an inconsistent one.
ConfusionMatrix confusion_in(const std::string& json_line);

}  // namespace ddp::train
