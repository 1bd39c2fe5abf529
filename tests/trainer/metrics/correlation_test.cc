#include "trainer/metrics/correlation.h"

#include <vector>

#include "tests/support/catch.h"

namespace ddp::train {
namespace {

TEST_CASE("correlations are those of scipy 1.17, with ties") {
  const std::vector<double> a = {1, 2, 2, 5, 3, 7, 1.5}, b = {2, 1, 4, 4, 4, 9, 0.5};
  CHECK(pearson(a, b) == Approx(0.8785732208220077).epsilon(1e-14));
  CHECK(spearman(a, b) == Approx(0.8040544114072732).epsilon(1e-14));
}

TEST_CASE("a constant follows nothing") {
  CHECK(pearson(std::vector<double>{1, 1, 1}, std::vector<double>{1, 2, 3}) == 0.0);
  CHECK(spearman(std::vector<double>{1, 2, 3}, std::vector<double>{2, 2, 2}) == 0.0);
  CHECK(pearson({}, {}) == 0.0);
}

}  // namespace
}  // namespace ddp::train
