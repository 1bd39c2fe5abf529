#include "trainer/run/divided_model.h"

#include <map>
#include <utility>
#include <vector>

#include "trainer/model/blocks/model_unit.h"
#include "trainer/run/state/sharded_state.h"

namespace ddp::train {
namespace {

std::vector<ModelUnit*> units_of(torch::nn::Module& model) {
  std::vector<ModelUnit*> units;
  for (const auto& module : model.modules()) {
    if (auto* unit = dynamic_cast<ModelUnit*>(module.get())) units.push_back(unit);
  }
  return units;
}

}  // namespace

std::unique_ptr<FullyShardedDataParallel> divide_model(Task& task, const TrainedParameters& trained,
                                                       ProcessGroup& group, int averaged_over,
                                                       FirstValues values) {
  const auto whole = whole_matrices(trained);
  std::map<const void*, std::size_t> place;
  std::vector<ShardedDataParallel::Parameter> parameters;
  for (const auto& p : task.parameters()) {
    place.emplace(p.tensor.unsafeGetTensorImpl(), parameters.size());
    parameters.push_back({p.name, p.tensor, whole.contains(p.name)});
  }
  for (const auto& item : task.model().named_parameters()) {  // below adapters
    const auto& tensor = item.value();
    if (place.emplace(tensor.unsafeGetTensorImpl(), parameters.size()).second)
      parameters.push_back({item.key(), tensor});
  }
  const auto units = units_of(task.model());
  std::vector<std::vector<std::size_t>> members;
  for (const ModelUnit* unit : units) {
    members.emplace_back();
    for (const auto& tensor : unit->parameters())
      members.back().push_back(place.at(tensor.unsafeGetTensorImpl()));
  }
  auto shards = std::make_unique<FullyShardedDataParallel>(std::move(parameters), members, group,
                                                           averaged_over, values);
  for (std::size_t i = 0; i < units.size(); ++i) {
    units[i]->set_hooks({[all = shards.get(), i] { all->before_forward(i); },
                         [all = shards.get(), i](const torch::Tensor& x, const torch::Tensor& y) {
                           all->after_forward(i, x, y);
                         }});
  }
  return shards;
}

void overlap_gather_with_forward(torch::nn::Module& model, ZeroDataParallel& shards) {
  const auto& parameters = shards.parameters();
  if (parameters.front().tensor.is_cpu()) return;
  std::map<const void*, std::size_t> place;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    place.emplace(parameters[i].tensor.unsafeGetTensorImpl(), i);
  const auto units = units_of(model);
  std::vector<std::vector<std::size_t>> members;
  for (const ModelUnit* unit : units) {
    members.emplace_back();
    for (const auto& tensor : unit->parameters()) {
      const auto trained = place.find(tensor.unsafeGetTensorImpl());
      if (trained != place.end()) members.back().push_back(trained->second);
    }
  }
  shards.overlap_gather_with_forward(members);
  for (std::size_t i = 0; i < units.size(); ++i) {
    units[i]->set_hooks({[all = &shards, i] { all->before_forward(i); },
                         [](const torch::Tensor&, const torch::Tensor&) {}});
  }
}

}  // namespace ddp::train
