#include "trainer/run/strategy/model_norm.h"

#include <fmt/format.h>

#include <map>
#include <sstream>
#include <string>
#include <utility>

#include "trainer/parallel/strategy/gradient_norm.h"
#include "trainer/parallel/strategy/shard_plan.h"

namespace ddp::train {

ModelNorm::ModelNorm(const std::vector<Parameter>& parameters, const TensorLayouts& layouts,
                     ProcessGroup& group)
    : group_(group) {
  if (group.size() == 1) return;
  const auto layout_of = [&](const Parameter& each) -> const TensorLayout& {
    return each.layout ? *each.layout : layouts.at(each.name);
  };
  std::string own;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const TensorLayout& layout = layout_of(parameters[i]);
    if (!layout.counted) continue;
    counted_.push_back(i);
    own += fmt::format("{} {} {}\n", layout.place, parameters[i].name,
                       norm_blocks(elements_in(layout.shape)));
  }
  std::map<std::pair<int64_t, std::string>, int64_t> blocks_of_all;  // in the model's order
  for (const auto& text : group_.gather_texts(own)) {
    std::istringstream words(text);
    std::pair<int64_t, std::string> parameter;
    while (words >> parameter.first >> parameter.second) words >> blocks_of_all[parameter];
  }
  std::map<std::string, int64_t> first_of;
  for (const auto& [parameter, blocks] : blocks_of_all) {
    first_of[parameter.second] = blocks_;
    blocks_ += blocks;
  }
  std::vector<int64_t> places;
  for (const std::size_t i : counted_) {
    const int64_t first =
        first_of.at(parameters[i].name) + layout_of(parameters[i]).first / kNormBlock;
    for (int64_t k = 0; k < norm_blocks(parameters[i].tensor.numel()); ++k)
      places.push_back(first + k);
  }
  const auto device = parameters.empty() ? torch::kCPU : parameters.front().tensor.device();
  places_ = torch::tensor(places, torch::kInt64).to(device);
}

torch::Tensor ModelNorm::of(const std::vector<torch::Tensor>& gradients) const {
  if (group_.size() == 1) return gradient_norm(gradients);
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> counted;
  for (const std::size_t i : counted_) counted.push_back(gradients[i]);
  auto sums = torch::zeros({blocks_}, places_.options().dtype(torch::kFloat64));
  sums.index_copy_(0, places_, block_sums_of_squares(counted).to(sums.device()));
  group_.all_reduce_sum(sums);  // where each block is one rank's, its sum and zeros: exact
  return norm_of_block_sums(sums);
}

}  // namespace ddp::train
