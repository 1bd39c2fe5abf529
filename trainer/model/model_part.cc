#include "trainer/model/model_part.h"

#include <algorithm>
#include <cstddef>

namespace ddp::train {

bool ModelPart::has(int64_t layer) const {
  return std::any_of(stages.begin(), stages.end(), [&](const LayerRange& range) {
    return range.begin <= layer && layer < range.end;
  });
}

StageCosts stage_costs(const WeightsLayout& layout, int64_t block_size) {
  StageCosts costs{0.0, 0.0, 0};
  double width = 0.0;
  for (const WeightPlace& place : layout) {
    costs.layers = std::max(costs.layers, place.block + 1);
    if (place.shape.size() < 2) continue;
    if (place.block == 0)
      costs.layer += static_cast<double>(elements_in(place.shape)) * place.share;
    if (place.split != Split::kVocabulary) continue;
    costs.head = static_cast<double>(elements_in(place.shape));
    width = static_cast<double>(place.shape[1]);
  }
  costs.layer += 2.0 * static_cast<double>(block_size) * width;
  return costs;
}

std::vector<LayerRange> cut_into_stages(const StageCosts& costs, int stages) {
  const int64_t before = stages - 1;
  const auto most_expensive = [&](int64_t last) {
    const int64_t longest = before == 0 ? 0 : (costs.layers - last + before - 1) / before;
    return std::max(static_cast<double>(longest) * costs.layer,
                    static_cast<double>(last) * costs.layer + costs.head);
  };
  int64_t last = before == 0 ? costs.layers : 1;
  for (int64_t more = last + 1; more <= costs.layers - before; ++more) {
    if (most_expensive(more) < most_expensive(last)) last = more;
  }
  std::vector<LayerRange> cut;
  int64_t begin = 0;
  for (int64_t i = 0; i < before; ++i) {
    const int64_t end = (costs.layers - last) * (i + 1) / before;
    cut.push_back({begin, end});
    begin = end;
  }
  cut.push_back({begin, costs.layers});
  return cut;
}

ModelPart part_of_rank(const std::vector<LayerRange>& stages, int rank, int ranks) {
  ModelPart part{stages.back().end, {}};
  for (auto i = static_cast<std::size_t>(rank); i < stages.size();
       i += static_cast<std::size_t>(ranks))
    part.stages.push_back(stages[i]);
  return part;
}

}  // namespace ddp::train
