#include "trainer/run/model_norm.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>

#include "trainer/parallel/strategy/gradient_norm.h"
#include "trainer/parallel/strategy/shard_plan.h"

namespace ddp::train {
namespace {

struct CountedParameter {
  int64_t place = 0;
  std::string name;
  int64_t blocks = 0;
};

/// In the model's order; of one place in that of the ranks.
std::vector<CountedParameter> counted_by_all(const std::string& own, ProcessGroup& group) {
  std::vector<CountedParameter> all;
  for (const auto& text : group.gather_texts(own)) {
    std::istringstream words(text);
    CountedParameter each;
    while (words >> each.place >> each.name >> each.blocks) all.push_back(each);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.place < b.place; });
  return all;
}

}  // namespace

ModelNorm::ModelNorm(const std::vector<Parameter>& parameters, const TensorLayouts& layouts,
                     ProcessGroup& group)
    : group_(group) {
  std::string own;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const TensorLayout& layout = layouts.at(parameters[i].name);
    if (!layout.counted) continue;
    counted_.push_back(i);
    own += fmt::format("{} {} {}\n", layout.place, parameters[i].name,
                       norm_blocks(elements_in(layout.shape)));
  }
  std::map<std::string, int64_t> first_of;
  for (const auto& [place, name, blocks] : counted_by_all(own, group_)) {
    if (first_of.emplace(name, blocks_).second) blocks_ += blocks;
  }
  std::vector<int64_t> places;
  for (const std::size_t i : counted_) {
    const auto& shard = parameters[i].layout;
    const int64_t first = first_of.at(parameters[i].name) + (shard ? shard->first / kNormBlock : 0);
    for (int64_t k = 0; k < norm_blocks(parameters[i].tensor.numel()); ++k)
      places.push_back(first + k);
  }
  const auto device = parameters.empty() ? torch::kCPU : parameters.front().tensor.device();
  places_ = torch::tensor(places, torch::kInt64).to(device);
}

torch::Tensor ModelNorm::operator()(const std::vector<torch::Tensor>& gradients) const {
  std::vector<torch::Tensor> counted;
  for (const std::size_t i : counted_) counted.push_back(gradients[i]);
  return norm_over_ranks(counted, places_, blocks_, group_);
}

}  // namespace ddp::train
