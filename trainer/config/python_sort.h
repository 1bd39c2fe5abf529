// sorted(), with what Python does where values have no order, such as nan.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace ddp::train {

/// The first run, turned when it falls, then each further value put where a search by halves finds
/// its place: Python's sort of a short list. Reversed it keeps the order of equal values, too.
template <typename T, typename Less>
void python_sort(std::vector<T>& values, bool reverse, Less less) {
  if (reverse) std::reverse(values.begin(), values.end());
  std::size_t run = std::min<std::size_t>(values.size(), 1);
  const bool falls = values.size() > 1 && less(values[1], values[0]);
  while (run > 0 && run < values.size() && less(values[run], values[run - 1]) == falls) ++run;
  if (falls) std::reverse(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(run));
  for (; run < values.size(); ++run) {
    const T pivot = std::move(values[run]);
    std::size_t left = 0;
    for (std::size_t right = run; left < right;) {
      const std::size_t middle = left + (right - left) / 2;
      if (less(pivot, values[middle])) {
        right = middle;
      } else {
        left = middle + 1;
      }
    }
    values.erase(values.begin() + static_cast<std::ptrdiff_t>(run));
    values.insert(values.begin() + static_cast<std::ptrdiff_t>(left), pivot);
  }
  if (reverse) std::reverse(values.begin(), values.end());
}

}  // namespace ddp::train
