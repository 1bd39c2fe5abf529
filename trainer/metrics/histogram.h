// The distribution of values, in the buckets of TensorBoard's histograms.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ddp::train {

/// Counts the finite values. As in TensorFlow's histogram.cc, bucket limits grow by 10 % from 1e-12
/// to 1e20, the same below zero; runs of empty buckets are left out.
struct Histogram {
  double min = 0.0;
  double max = 0.0;
  double sum = 0.0;
  double sum_squares = 0.0;
  int64_t count = 0;
  int64_t not_finite = 0;  ///< Number of non-finite values, which are not counted here.
  /// Bucket i holds the values in [limits[i - 1], limits[i]); of the first, all below limits[0].
  std::vector<double> limits;
  std::vector<double> counts;

  static Histogram of(std::span<const float> values);
};

}  // namespace ddp::train
