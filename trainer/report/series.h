// A curve: values over steps, thinned without changing its shape, and packed for a page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ddp::train {

struct Series {
  std::vector<int64_t> steps;  ///< Never decreasing.
  std::vector<double> values;  ///< NaN: not a number, or not recorded.

  void add(int64_t step, double value);
  std::size_t size() const { return steps.size(); }
};

/// At most `most` points (at least 4): the first and the last, and of each of (most - 2) / 2 equal
/// stretches of points the least and the greatest; a value that is not finite comes before both.
Series thinned(const Series& series, std::size_t most);

/// Differences of the steps as unsigned LEB128, in base64.
std::string packed_steps(const Series& series);
/// Values as float32, little-endian, in base64.
std::string packed_values(const Series& series);

/// The largest size that all series may have for their sum to be at most `budget`.
std::size_t fair_size(std::vector<std::size_t> sizes, std::size_t budget);

}  // namespace ddp::train
