#include "trainer/metrics/class_scores.h"

#include "tests/support/catch.h"

namespace ddp::train {
namespace {

TEST_CASE("precision, recall and F1 are shares of what was answered and of what there is") {
  const ClassScores scores = scores_of({6.0, 8.0, 12.0});
  CHECK(scores.precision == 0.5);
  CHECK(scores.recall == 0.75);
  CHECK(scores.f1 == 0.6);
}

TEST_CASE("a class that nobody answers scores 0, one that does not occur is left out of means") {
  const std::vector<ClassCounts> classes = {{3.0, 3.0, 4.0}, {0.0, 1.0, 0.0}, {0.0, 0.0, 0.0}};
  const ClassScores macro = macro_scores(classes);
  CHECK(macro.precision == 0.375);
  CHECK(macro.recall == 0.5);
  CHECK(micro_scores(classes).f1 == 0.75);
  CHECK(macro_scores({{0.0, 0.0, 0.0}}).f1 == 0.0);
}

TEST_CASE(
    "Matthews' correlation is 1 for right answers, -1 for swapped ones, 0 where one class is all") {
  CHECK(matthews_correlation({{3.0, 3.0, 3.0}, {2.0, 2.0, 2.0}}) == 1.0);
  CHECK(matthews_correlation({{0.0, 2.0, 2.0}, {0.0, 2.0, 2.0}}) == -1.0);
  CHECK(matthews_correlation({{3.0, 3.0, 5.0}, {0.0, 2.0, 0.0}}) == 0.0);
}

}  // namespace
}  // namespace ddp::train
