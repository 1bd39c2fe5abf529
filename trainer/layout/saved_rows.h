// Which rank saves which rows of a tensor that is divided between ranks at any element: pure
// functions of who holds what, the same on all ranks.
#pragma once

#include <cstdint>
#include <vector>

namespace ddp::train {

/// Elements [begin, end), by rows, of one tensor that one rank holds.
struct ElementRange {
  int rank = 0;
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const ElementRange&) const = default;
};

/// The elements that each rank saves, whole rows of `row` elements. A row goes to the rank that
/// holds its first element, so that at most a part of a row moves at each cut; where a rank holds
/// ranges that lie apart, to the rank that holds it in a division into equal parts: a rank then
/// saves one box of each tensor, as formats with a box per tensor and file need it. `held` is in
/// the order of the elements and has all of them. Ranks that save none are left out.
std::vector<ElementRange> rows_to_save(const std::vector<ElementRange>& held, int64_t row,
                                       int ranks);

/// A part of a tensor that has to go to the rank that saves it.
struct Move {
  int from = 0;
  int to = 0;
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const Move&) const = default;
};

/// In the order of the elements.
std::vector<Move> moves_between(const std::vector<ElementRange>& held,
                                const std::vector<ElementRange>& saved);

}  // namespace ddp::train
