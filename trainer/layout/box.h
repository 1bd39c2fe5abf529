// Boxes of a tensor: what files and ranks hold of it. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace ddp::train {

/// Part of a tensor: [offset, offset + size) in each dimension. A scalar has none.
struct Box {
  std::vector<int64_t> offsets;
  std::vector<int64_t> sizes;

  static Box whole(const std::vector<int64_t>& shape);
  /// Rows [begin, end) of the first dimension.
  static Box rows(const std::vector<int64_t>& shape, int64_t begin, int64_t end);
  int64_t elements() const;
  bool operator==(const Box&) const = default;
};

/// Elements of a tensor of this shape.
int64_t elements_in(const std::vector<int64_t>& shape);
/// Rows of a shape along the first dimension, and the elements of one; a scalar is one row.
int64_t rows_in(const std::vector<int64_t>& shape);
int64_t row_elements(const std::vector<int64_t>& shape);

/// The elements [begin, end) of a box, numbered by rows, as boxes in that order: part of a row,
/// whole rows, part of a row.
std::vector<Box> boxes_of_range(const Box& box, int64_t begin, int64_t end);

/// Calls `visit(first, count)` for each run of the box's elements that are adjacent in a tensor of
/// `shape`, in the box's order. `first`: the number by rows in the tensor.
void for_each_run(const Box& box, const std::vector<int64_t>& shape,
                  const std::function<void(int64_t first, int64_t count)>& visit);

}  // namespace ddp::train
