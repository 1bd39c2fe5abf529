#include "trainer/run/state/shard_cut.h"

#include <algorithm>
#include <set>

namespace ddp::train {
namespace {

/// Neighbours of one rank as one range.
std::vector<HeldRange> joined(const std::vector<HeldRange>& held) {
  std::vector<HeldRange> ranges;
  for (const HeldRange& range : held) {
    if (!ranges.empty() && ranges.back().rank == range.rank && ranges.back().end == range.begin)
      ranges.back().end = range.end;
    else
      ranges.push_back(range);
  }
  return ranges;
}

bool one_range_each(const std::vector<HeldRange>& ranges) {
  std::set<int> ranks;
  return std::all_of(ranges.begin(), ranges.end(),
                     [&](const HeldRange& range) { return ranks.insert(range.rank).second; });
}

int64_t rounded_up(int64_t element, int64_t row) { return (element + row - 1) / row * row; }

}  // namespace

std::vector<HeldRange> rows_to_save(const std::vector<HeldRange>& held, int64_t row, int ranks) {
  const auto ranges = joined(held);
  if (ranges.empty() || row == 0) return {};
  std::vector<HeldRange> saved;
  if (one_range_each(ranges)) {
    for (const HeldRange& range : ranges)
      saved.push_back({range.rank, rounded_up(range.begin, row), rounded_up(range.end, row)});
  } else {
    const int64_t rows = ranges.back().end / row;
    for (int rank = 0; rank < ranks; ++rank)
      saved.push_back({rank, rows * rank / ranks * row, rows * (rank + 1) / ranks * row});
  }
  std::erase_if(saved, [](const HeldRange& range) { return range.begin == range.end; });
  return saved;
}

std::vector<Move> moves_between(const std::vector<HeldRange>& held,
                                const std::vector<HeldRange>& saved) {
  std::vector<Move> moves;
  for (const HeldRange& range : held) {
    for (const HeldRange& target : saved) {
      const int64_t begin = std::max(range.begin, target.begin);
      const int64_t end = std::min(range.end, target.end);
      if (begin < end && range.rank != target.rank)
        moves.push_back({range.rank, target.rank, begin, end});
    }
  }
  return moves;
}

}  // namespace ddp::train
