#include "trainer/run/early_stopping.h"

#include <cmath>
#include "tests/support/catch.h"

#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

/// After how many of `scores` the run ends; 0: never.
int ends_after(EarlyStopping stopping, const std::vector<double>& scores) {
  for (std::size_t i = 0; i < scores.size(); ++i) {
    stopping.evaluated(scores[i]);
    if (stopping.stops()) return static_cast<int>(i) + 1;
  }
  return 0;
}

}  // namespace

TEST_CASE("patience counts evaluations in a row without progress") {
  CHECK(ends_after({2, 0.0}, {3, 2, 2.5, 2.25, 1}) == 4);
  CHECK(ends_after({2, 0.0}, {3, 2, 2.5, 1.5, 2, 1}) == 0);
  CHECK(ends_after({1, 0.0}, {3, 3}) == 2);
  CHECK(ends_after({std::nullopt, 0.0}, {1, 2, 3, 4}) == 0);
}

TEST_CASE("an improvement below min_delta is no progress, and many small ones add up") {
  CHECK(ends_after({2, 0.5}, {3, 2.75, 2.6}) == 3);
  CHECK(ends_after({2, 0.5}, {3, 2.75, 2.4, 2.1, 1.8}) == 0);
}

TEST_CASE("an evaluation that is NaN is no progress") {
  CHECK(ends_after({2, 0.0}, {std::nan(""), std::nan("")}) == 2);
  CHECK(ends_after({2, 0.0}, {std::nan(""), 5, std::nan(""), 4}) == 0);
}

TEST_CASE("the state goes on where it was, under another patience, too") {
  EarlyStopping before(3, 0.0);
  for (const double score : {1.0, 2.0, 2.0}) before.evaluated(score);
  EarlyStopping after(2, 0.0);
  after.load_state(before.state());
  CHECK(after.stops());
  after.evaluated(0.5);
  CHECK_FALSE(after.stops());
  after.load_state("");
  CHECK(after.state().empty());
  CHECK_THROWS_AS(after.load_state("{"), RunError);
}

}  // namespace ddp::train
