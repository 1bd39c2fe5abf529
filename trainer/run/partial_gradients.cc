#include "trainer/run/partial_gradients.h"

#include <algorithm>

namespace ddp::train {

PartialGradients::PartialGradients(const std::vector<std::string>& partial,
                                   ShardedDataParallel& shards, Mesh& mesh)
    : shards_(shards), mesh_(mesh) {
  const auto& parameters = shards.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, tensor, whole] = parameters[i];
    if (!tensor.requires_grad() || std::find(partial.begin(), partial.end(), name) == partial.end())
      continue;
    begin_.emplace(i, elements_);
    elements_ += tensor.numel();
  }
}

template <class Visit>
void PartialGradients::for_each_own(const torch::Tensor& all, const Visit& visit) const {
  for (const OwnShard& own : shards_.own()) {
    const auto begin = begin_.find(own.shard.parameter);
    if (begin == begin_.end()) continue;
    const auto place = all.narrow(0, begin->second + own.shard.begin, own.shard.size());
    visit(own.gradient, place.view_as(own.gradient));
  }
}

void PartialGradients::sum() {
  if (elements_ == 0) return;
  const torch::NoGradGuard no_grad;
  const auto options = shards_.own().front().value.options().dtype(torch::kFloat32);
  const auto all = torch::zeros({elements_}, options.requires_grad(false));
  for_each_own(all, [](const torch::Tensor& own, const torch::Tensor& place) { place.copy_(own); });
  mesh_.data().all_reduce_sum(all);  // one rank's value and zeros
  mesh_.tensor().all_reduce_sum(all);
  for_each_own(all, [](const torch::Tensor& own, const torch::Tensor& place) { own.copy_(place); });
}

}  // namespace ddp::train
