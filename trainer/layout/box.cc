#include "trainer/layout/box.h"

#include <algorithm>
#include <numeric>

namespace ddp::train {
namespace {

int64_t product(const std::vector<int64_t>& sizes, std::size_t from) {
  return std::accumulate(sizes.begin() + static_cast<std::ptrdiff_t>(std::min(from, sizes.size())),
                         sizes.end(), int64_t{1}, std::multiplies<>());
}

/// Adds the elements [begin, end) of `box`, all of which agree in the dimensions before `dim`.
void add_range(const Box& box, std::size_t dim, int64_t begin, int64_t end,
               std::vector<Box>& boxes) {
  if (begin >= end) return;
  if (dim == box.sizes.size()) {
    boxes.push_back(box);
    return;
  }
  const int64_t inner = product(box.sizes, dim + 1);
  const auto slices = [&](int64_t first, int64_t last) {
    Box part = box;
    part.offsets[dim] += first;
    part.sizes[dim] = last - first;
    return part;
  };
  const int64_t first_whole = (begin + inner - 1) / inner;
  const int64_t last_whole = end / inner;
  if (first_whole > last_whole)
    return add_range(slices(last_whole, first_whole), dim + 1, begin - last_whole * inner,
                     end - last_whole * inner, boxes);
  if (begin < first_whole * inner)
    add_range(slices(first_whole - 1, first_whole), dim + 1, begin - (first_whole - 1) * inner,
              inner, boxes);
  if (first_whole < last_whole) boxes.push_back(slices(first_whole, last_whole));
  add_range(slices(last_whole, last_whole + 1), dim + 1, 0, end - last_whole * inner, boxes);
}

}  // namespace

Box Box::whole(const std::vector<int64_t>& shape) {
  return {std::vector<int64_t>(shape.size(), 0), shape};
}

Box Box::rows(const std::vector<int64_t>& shape, int64_t begin, int64_t end) {
  Box box = whole(shape);
  if (shape.empty()) return box;
  box.offsets.front() = begin;
  box.sizes.front() = end - begin;
  return box;
}

int64_t Box::elements() const { return product(sizes, 0); }

int64_t elements_in(const std::vector<int64_t>& shape) { return product(shape, 0); }

int64_t rows_in(const std::vector<int64_t>& shape) { return shape.empty() ? 1 : shape.front(); }

int64_t row_elements(const std::vector<int64_t>& shape) { return product(shape, 1); }

std::vector<Box> boxes_of_range(const Box& box, int64_t begin, int64_t end) {
  std::vector<Box> boxes;
  add_range(box, 0, begin, end, boxes);
  return boxes;
}

void for_each_run(const Box& box, const std::vector<int64_t>& shape,
                  const std::function<void(int64_t first, int64_t count)>& visit) {
  // The dimensions from `inner` on make up one run.
  std::size_t inner = shape.size();
  while (inner > 0 && (inner == shape.size() || box.sizes[inner] == shape[inner])) --inner;
  const int64_t run = product(box.sizes, inner);
  if (run == 0) return;
  for (int64_t i = 0, runs = box.elements() / run; i < runs; ++i) {
    int64_t first = 0;
    int64_t rest = i;  // the run's place among those of the dimensions up to the one looked at
    int64_t step = 1;
    for (std::size_t d = shape.size(); d-- > 0;) {
      int64_t at = box.offsets[d];
      if (d < inner) {
        at += rest % box.sizes[d];
        rest /= box.sizes[d];
      }
      first += at * step;
      step *= shape[d];
    }
    visit(first, run);
  }
}

}  // namespace ddp::train
