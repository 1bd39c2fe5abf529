#include "trainer/metrics/histogram.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace ddp::train {
namespace {

std::vector<double> make_limits() {
  constexpr double kSmallest = 1e-12;
  constexpr double kLargest = 1e20;
  constexpr double kGrowth = 1.1;
  std::vector<double> positive;
  positive.push_back(kSmallest);
  while (positive.back() * kGrowth < kLargest) positive.push_back(positive.back() * kGrowth);
  std::vector<double> all;
  for (auto limit = positive.rbegin(); limit != positive.rend(); ++limit) all.push_back(-*limit);
  all.push_back(0.0);
  all.insert(all.end(), positive.begin(), positive.end());
  all.push_back(std::numeric_limits<double>::max());
  return all;
}

const std::vector<double>& all_limits() {
  static const std::vector<double> limits = make_limits();
  return limits;
}

/// Keeps the buckets that hold something and, as the lower end of each, an empty one before it.
void take_filled(const std::vector<double>& counts, Histogram& histogram) {
  const auto& limits = all_limits();
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const bool next_filled = i + 1 < counts.size() && counts[i + 1] > 0;
    if (counts[i] == 0 && !next_filled) continue;
    histogram.limits.push_back(limits[i]);
    histogram.counts.push_back(counts[i]);
  }
}

}  // namespace

Histogram Histogram::of(std::span<const float> values) {
  const auto& limits = all_limits();
  std::vector<double> counts(limits.size(), 0.0);
  Histogram histogram;
  histogram.min = std::numeric_limits<double>::max();
  histogram.max = std::numeric_limits<double>::lowest();
  for (const float single : values) {
    const auto value = static_cast<double>(single);
    if (!std::isfinite(value)) {
      ++histogram.not_finite;
      continue;
    }
    const auto bucket = std::upper_bound(limits.begin(), limits.end(), value) - limits.begin();
    counts[std::min(static_cast<std::size_t>(bucket), counts.size() - 1)] += 1;
    histogram.min = std::min(histogram.min, value);
    histogram.max = std::max(histogram.max, value);
    histogram.sum += value;
    histogram.sum_squares += value * value;
    ++histogram.count;
  }
  if (histogram.count == 0) histogram.min = histogram.max = 0.0;
  take_filled(counts, histogram);
  return histogram;
}

}  // namespace ddp::train
