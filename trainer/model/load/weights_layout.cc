#include "trainer/model/load/weights_layout.h"

#include <algorithm>
#include <cmath>

namespace ddp::train {

TensorLayout layout_of(const WeightPlace& place, int64_t rank, int64_t ranks) {
  const std::size_t dim = place.split == Split::kRows ? 1 : 0;
  const bool divided = place.split != Split::kNone && place.split != Split::kInEachPart;
  if (!divided || ranks == 1) return TensorLayout::whole(place.shape, /*counted=*/rank == 0);
  const int64_t range = place.shape[dim] / place.ranges;
  const int64_t unit = range / place.units;
  const IndexRange own{place.units * rank / ranks * unit, place.units * (rank + 1) / ranks * unit};
  std::vector<IndexRange> ranges;
  for (int64_t i = 0; i < place.ranges; ++i)
    ranges.push_back({i * range + own.begin, i * range + own.end});
  return TensorLayout::cut(place.shape, static_cast<int64_t>(dim), ranges);
}

int64_t expert_count(const WeightsLayout& layout) {
  int64_t count = 0;
  for (const WeightPlace& place : layout) count = std::max(count, place.expert + 1);
  return count;
}

int64_t elements_of(const WeightsLayout& layout) {
  int64_t elements = 0;
  for (const WeightPlace& place : layout) elements += elements_in(place.shape);
  return elements;
}

int64_t used_by_token(const WeightsLayout& layout) {
  double used = 0.0;
  for (const WeightPlace& place : layout)
    used += static_cast<double>(elements_in(place.shape)) * place.share;
  return std::llround(used);
}

}  // namespace ddp::train
