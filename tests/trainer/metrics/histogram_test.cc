#include "trainer/metrics/histogram.h"

#include <cmath>
#include <numeric>

#include "tests/support/catch.h"

namespace ddp::train {
namespace {

TEST_CASE("a histogram counts each finite value once, within the limits of its bucket") {
  const std::vector<float> values = {0.5F, -2.0F, 0.0F, 0.5F, NAN, INFINITY, 1e-20F, 3e30F};
  const Histogram histogram = Histogram::of(values);
  CHECK(histogram.count == 6);
  CHECK(histogram.not_finite == 2);
  CHECK(histogram.min == -2.0);
  CHECK(histogram.max == static_cast<double>(3e30F));
  REQUIRE(histogram.limits.size() == histogram.counts.size());
  CHECK(std::accumulate(histogram.counts.begin(), histogram.counts.end(), 0.0) == 6.0);
  for (std::size_t i = 1; i < histogram.limits.size(); ++i) {
    CHECK(histogram.limits[i - 1] < histogram.limits[i]);
    double inside = 0;
    for (const float value : values) {
      const auto exact = static_cast<double>(value);
      inside += exact >= histogram.limits[i - 1] && exact < histogram.limits[i] ? 1 : 0;
    }
    CHECK(inside == histogram.counts[i]);
  }
}

TEST_CASE("a histogram of nothing is empty") {
  const Histogram histogram = Histogram::of({});
  CHECK(histogram.count == 0);
  CHECK(histogram.min == 0.0);
  CHECK(histogram.max == 0.0);
  CHECK(histogram.limits.empty());
}

}  // namespace
}  // namespace ddp::train
