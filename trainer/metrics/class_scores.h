// A classifier's scores: accuracy, precision, recall and F1 from counts.
#pragma once

#include <cstdint>
#include <vector>

namespace ddp::train {

/// Counts of one class among all answers.
struct ClassCounts {
  double right = 0.0;     ///< Samples of the class that were predicted as such.
  double actual = 0.0;    ///< Samples of the class.
  double answered = 0.0;  ///< Samples predicted as the class.
};

struct ClassScores {
  double precision = 0.0;
  double recall = 0.0;
  double f1 = 0.0;
};

/// As scikit-learn's precision_recall_fscore_support with zero_division=0: divisions by zero yield
/// 0.
ClassScores scores_of(const ClassCounts& counts);
/// average="macro": the means over the classes that occur, actual or predicted.
ClassScores macro_scores(const std::vector<ClassCounts>& classes);
/// average="micro": with one class for each sample all three are the accuracy.
ClassScores micro_scores(const std::vector<ClassCounts>& classes);
/// As scikit-learn's matthews_corrcoef, for one class for each sample; 0 where its denominator is
/// 0.
double matthews_correlation(const std::vector<ClassCounts>& classes);

}  // namespace ddp::train
