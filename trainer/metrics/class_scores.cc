#include "trainer/metrics/class_scores.h"

#include <algorithm>
#include <cmath>

namespace ddp::train {
namespace {

double share_or_0(double part, double whole) { return whole > 0.0 ? part / whole : 0.0; }

}  // namespace

ClassScores scores_of(const ClassCounts& counts) {
  return {share_or_0(counts.right, counts.answered), share_or_0(counts.right, counts.actual),
          share_or_0(2.0 * counts.right, counts.actual + counts.answered)};
}

ClassScores macro_scores(const std::vector<ClassCounts>& classes) {
  ClassScores sum;
  double occurring = 0.0;
  for (const ClassCounts& counts : classes) {
    if (counts.actual + counts.answered == 0.0) continue;
    const ClassScores scores = scores_of(counts);
    sum.precision += scores.precision;
    sum.recall += scores.recall;
    sum.f1 += scores.f1;
    occurring += 1.0;
  }
  const double divisor = std::max(1.0, occurring);
  return {sum.precision / divisor, sum.recall / divisor, sum.f1 / divisor};
}

ClassScores micro_scores(const std::vector<ClassCounts>& classes) {
  ClassCounts sum;
  for (const ClassCounts& counts : classes) {
    sum.right += counts.right;
    sum.actual += counts.actual;
    sum.answered += counts.answered;
  }
  return scores_of(sum);
}

double matthews_correlation(const std::vector<ClassCounts>& classes) {
  double right = 0.0, samples = 0.0, both = 0.0, answered = 0.0, actual = 0.0;
  for (const ClassCounts& counts : classes) {
    right += counts.right;
    samples += counts.actual;
    both += counts.answered * counts.actual;
    answered += counts.answered * counts.answered;
    actual += counts.actual * counts.actual;
  }
  const double squares = samples * samples;
  return share_or_0(right * samples - both, std::sqrt((squares - answered) * (squares - actual)));
}

}  // namespace ddp::train
