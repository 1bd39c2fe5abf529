#include "trainer/run/strategy/partial_gradients.h"

#include <algorithm>
#include <cstdint>
#include <map>

namespace ddp::train {
namespace {

/// The first element of each partial gradient among all of them, by parameter.
struct Places {
  std::map<std::size_t, int64_t> begin;
  int64_t elements = 0;
};

Places places_of(const std::vector<std::string>& partial, const ShardedDataParallel& shards) {
  Places places;
  const auto& parameters = shards.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, tensor, whole] = parameters[i];
    if (!tensor.requires_grad() || std::find(partial.begin(), partial.end(), name) == partial.end())
      continue;
    places.begin.emplace(i, places.elements);
    places.elements += tensor.numel();
  }
  return places;
}

// The shards of ranks that share layers need not match, as their parts of a vocabulary may differ
// in size: each copy of the model assembles its gradients before they are summed.
void sum_shards(const Places& places, const ShardedDataParallel& shards, const Mesh& mesh) {
  const torch::NoGradGuard no_grad;
  const auto options = shards.own().front().value.options().dtype(torch::kFloat32);
  const auto all = torch::zeros({places.elements}, options.requires_grad(false));
  const auto for_each_own = [&](const auto& visit) {
    for (const OwnShard& own : shards.own()) {
      const auto begin = places.begin.find(own.shard.parameter);
      if (begin == places.begin.end()) continue;
      const auto place = all.narrow(0, begin->second + own.shard.begin, own.shard.size());
      visit(own.gradient, place.view_as(own.gradient));
    }
  };
  for_each_own([](const torch::Tensor& own, const torch::Tensor& place) { place.copy_(own); });
  mesh.data().all_reduce_sum(all);  // one rank's value and zeros
  mesh.tensor().all_reduce_sum(all);
  for_each_own([](const torch::Tensor& own, const torch::Tensor& place) { own.copy_(place); });
}

}  // namespace

std::function<void()> sum_of_partial_gradients(Task& task, const ShardedDataParallel* shards,
                                               const Mesh& mesh) {
  if (shards == nullptr) return [&task] { task.complete_gradients(); };
  return [places = places_of(task.partial_gradients(), *shards), shards, &mesh] {
    if (places.elements > 0) sum_shards(places, *shards, mesh);
  };
}

}  // namespace ddp::train
