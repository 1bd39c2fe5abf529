#include "trainer/layout/tensor_layout.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace ddp::train {

TensorLayout TensorLayout::whole(std::vector<int64_t> shape, bool counted, int64_t place) {
  TensorLayout layout{std::move(shape), {}, counted, place};
  layout.boxes.push_back(Box::whole(layout.shape));
  return layout;
}

TensorLayout TensorLayout::cut(std::vector<int64_t> shape, int64_t dim,
                               const std::vector<IndexRange>& ranges) {
  if (dim != 0 && ranges.size() != 1)
    throw std::logic_error("layout: several ranges of a dimension other than the first");
  TensorLayout layout{std::move(shape), {}};
  const auto d = static_cast<std::size_t>(dim);
  for (const IndexRange& range : ranges) {
    Box box = Box::whole(layout.shape);
    box.offsets.at(d) = range.begin;
    box.sizes.at(d) = range.size();
    layout.boxes.push_back(std::move(box));
  }
  return layout;
}

TensorLayout TensorLayout::slice(int64_t begin, int64_t end) const {
  TensorLayout part{shape, {}, counted, place, first + begin};
  int64_t at = 0;
  for (const Box& box : boxes) {
    const int64_t elements = box.elements();
    const auto of_box =
        boxes_of_range(box, std::max<int64_t>(begin - at, 0), std::min(end - at, elements));
    part.boxes.insert(part.boxes.end(), of_box.begin(), of_box.end());
    at += elements;
  }
  return part;
}

TensorLayout TensorLayout::in_blocks(int64_t block) const {
  const int64_t all = elements_in(shape);
  const auto rounded_up = [&](int64_t element) { return (element + block - 1) / block; };
  std::vector<IndexRange> runs;
  for (const Box& box : boxes) {
    for_each_run(box, shape, [&](int64_t begin, int64_t count) {
      if (!runs.empty() && runs.back().end == begin)
        runs.back().end += count;
      else
        runs.push_back({begin, begin + count});
    });
  }
  TensorLayout result{{rounded_up(all)}, {}, counted, place, first / block};
  for (const IndexRange& run : runs) {
    if (run.begin % block != 0 || (run.end % block != 0 && run.end != all))
      throw std::logic_error("layout: a box ends within a block");
    result.boxes.push_back(Box::rows(result.shape, run.begin / block, rounded_up(run.end)));
  }
  return result;
}

int64_t TensorLayout::elements() const {
  return std::accumulate(boxes.begin(), boxes.end(), int64_t{0},
                         [](int64_t sum, const Box& box) { return sum + box.elements(); });
}

std::vector<int64_t> TensorLayout::local_shape() const {
  auto local = boxes.front().sizes;
  for (std::size_t i = 1; i < boxes.size(); ++i) local.front() += boxes[i].sizes.front();
  return local;
}

}  // namespace ddp::train
