// Packs conversations into rows of equal length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ddp::train {

/// Assigns items of these sizes, each at most `capacity`, to rows: each item, from the largest on,
/// to the fullest row that has room for it (best fit decreasing). Rows, and the items in them, are
/// in the order of their first item. A function of the sizes alone.
std::vector<std::vector<std::size_t>> pack(std::span<const int64_t> sizes, int64_t capacity);

}  // namespace ddp::train
