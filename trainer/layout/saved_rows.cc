#include "trainer/layout/saved_rows.h"

#include <algorithm>
#include <set>

namespace ddp::train {
namespace {

/// Neighbours of one rank as one range.
std::vector<ElementRange> joined(const std::vector<ElementRange>& held) {
  std::vector<ElementRange> ranges;
  for (const ElementRange& range : held) {
    if (!ranges.empty() && ranges.back().rank == range.rank && ranges.back().end == range.begin)
      ranges.back().end = range.end;
    else
      ranges.push_back(range);
  }
  return ranges;
}

bool one_range_each(const std::vector<ElementRange>& ranges) {
  std::set<int> ranks;
  return std::all_of(ranges.begin(), ranges.end(),
                     [&](const ElementRange& range) { return ranks.insert(range.rank).second; });
}

int64_t rounded_up(int64_t element, int64_t row) { return (element + row - 1) / row * row; }

}  // namespace

std::vector<ElementRange> rows_to_save(const std::vector<ElementRange>& held, int64_t row,
                                       int ranks) {
  const auto ranges = joined(held);
  if (ranges.empty() || row == 0) return {};
  std::vector<ElementRange> saved;
  if (one_range_each(ranges)) {
    for (const ElementRange& range : ranges)
      saved.push_back({range.rank, rounded_up(range.begin, row), rounded_up(range.end, row)});
  } else {
    const int64_t rows = ranges.back().end / row;
    for (int rank = 0; rank < ranks; ++rank)
      saved.push_back({rank, rows * rank / ranks * row, rows * (rank + 1) / ranks * row});
  }
  std::erase_if(saved, [](const ElementRange& range) { return range.begin == range.end; });
  return saved;
}

std::vector<Move> moves_between(const std::vector<ElementRange>& held,
                                const std::vector<ElementRange>& saved) {
  std::vector<Move> moves;
  for (const ElementRange& range : held) {
    for (const ElementRange& target : saved) {
      const int64_t begin = std::max(range.begin, target.begin);
      const int64_t end = std::min(range.end, target.end);
      if (begin < end && range.rank != target.rank)
        moves.push_back({range.rank, target.rank, begin, end});
    }
  }
  return moves;
}

}  // namespace ddp::train
