#include "trainer/metrics/correlation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

namespace ddp::train {
namespace {

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::vector<double> ranks_of(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::size_t i, std::size_t k) { return values[i] < values[k]; });
  std::vector<double> ranks(values.size());
  for (std::size_t first = 0, end = 0; first < order.size(); first = end) {
    for (end = first + 1; end < order.size() && values[order[end]] == values[order[first]];) ++end;
    const double shared = static_cast<double>(first + end - 1) / 2.0;
    for (std::size_t i = first; i < end; ++i) ranks[order[i]] = shared;
  }
  return ranks;
}

}  // namespace

double pearson(std::span<const double> a, std::span<const double> b) {
  const double mean_a = mean_of(a), mean_b = mean_of(b);
  double ab = 0.0, aa = 0.0, bb = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = a[i] - mean_a, y = b[i] - mean_b;
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  return aa > 0.0 && bb > 0.0 ? ab / std::sqrt(aa) / std::sqrt(bb) : 0.0;
}

double spearman(std::span<const double> a, std::span<const double> b) {
  const auto is_finite = [](double value) { return std::isfinite(value); };
  if (!std::all_of(a.begin(), a.end(), is_finite) || !std::all_of(b.begin(), b.end(), is_finite))
    return std::numeric_limits<double>::quiet_NaN();
  return pearson(ranks_of(a), ranks_of(b));
}

}  // namespace ddp::train
