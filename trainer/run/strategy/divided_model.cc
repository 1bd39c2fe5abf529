#include "trainer/run/strategy/divided_model.h"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trainer/model/blocks/model_unit.h"
#include "trainer/parallel/strategy/ddp.h"
#include "trainer/parallel/strategy/fully_sharded.h"
#include "trainer/parallel/strategy/zero.h"

namespace ddp::train {
namespace {

std::vector<ModelUnit*> units_of(torch::nn::Module& model) {
  std::vector<ModelUnit*> units;
  for (const auto& module : model.modules()) {
    if (auto* unit = dynamic_cast<ModelUnit*>(module.get())) units.push_back(unit);
  }
  return units;
}

/// The indices of each unit's parameters in `place`, without those that it lacks.
std::vector<std::vector<std::size_t>> members_of(const std::vector<ModelUnit*>& units,
                                                 const std::map<const void*, std::size_t>& place) {
  std::vector<std::vector<std::size_t>> members;
  for (const ModelUnit* unit : units) {
    members.emplace_back();
    for (const auto& tensor : unit->parameters()) {
      const auto found = place.find(tensor.unsafeGetTensorImpl());
      if (found != place.end()) members.back().push_back(found->second);
    }
  }
  return members;
}

// Muon orthogonalises whole matrices.
std::set<std::string> whole_matrices(const TrainedParameters& trained) {
  std::set<std::string> matrices;
  for (const auto& group : trained.groups) {
    if (group.options.optimizer != OptimizerName::kMuon) continue;
    for (const std::size_t i : group.members) matrices.insert(trained.parameters[i].name);
  }
  return matrices;
}

/// Which elements of its logical tensor a shard holds. `layouts`: of the parameters, where ranks
/// divide the model as well.
TensorLayout layout_of_shard(const ShardedDataParallel& shards, const Shard& shard,
                             const TensorLayouts& layouts) {
  const auto& parameter = shards.parameters()[shard.parameter];
  const auto found = layouts.find(parameter.name);
  const TensorLayout all =
      found != layouts.end() ? found->second
                             : TensorLayout::whole(parameter.tensor.sizes().vec(), /*counted=*/true,
                                                   static_cast<int64_t>(shard.parameter));
  return all.slice(shard.begin, shard.end);
}

/// The shards of `trained` that this rank updates, in the groups of their parameters.
TrainedParameters shards_of(const TrainedParameters& trained, const ShardedDataParallel& shards,
                            const TensorLayouts& layouts) {
  TrainedParameters pieces;
  std::map<std::string, const Parameter*> by_name;
  for (const Parameter& p : trained.parameters) by_name.emplace(p.name, &p);
  std::map<std::string, std::vector<std::size_t>> of_parameter;
  for (const OwnShard& own : shards.own()) {
    if (!own.gradient.defined()) continue;  // frozen
    const Parameter& whole = *by_name.at(shards.parameters()[own.shard.parameter].name);
    of_parameter[whole.name].push_back(pieces.parameters.size());
    torch::Tensor value = own.value;
    value.mutable_grad() = own.gradient;
    pieces.parameters.push_back(
        {whole.name, value, whole.role, layout_of_shard(shards, own.shard, layouts)});
  }
  for (const auto& group : trained.groups) {
    ParameterGroup own = group;
    own.members.clear();
    for (const std::size_t i : group.members) {
      const auto& members = of_parameter[trained.parameters[i].name];
      own.members.insert(own.members.end(), members.begin(), members.end());
    }
    if (!own.members.empty()) pieces.groups.push_back(std::move(own));
  }
  return pieces;
}

std::unique_ptr<FullyShardedDataParallel> divide_weights(Task& task,
                                                         const TrainedParameters& trained,
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
  const auto members = members_of(units, place);
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
  shards.overlap_gather_with_forward(members_of(units, place));
  for (std::size_t i = 0; i < units.size(); ++i) {
    units[i]->set_hooks({[all = &shards, i] { all->before_forward(i); },
                         [](const torch::Tensor&, const torch::Tensor&) {}});
  }
}

std::unique_ptr<ZeroDataParallel> divide_state(Task& task, const TrainedParameters& trained,
                                               ProcessGroup& group, const DistributedConfig& config,
                                               int averaged_over, FirstValues values) {
  const auto matrices = whole_matrices(trained);
  std::vector<ShardedDataParallel::Parameter> parameters;
  for (const auto& p : trained.parameters)
    parameters.push_back({p.name, p.tensor, matrices.contains(p.name)});
  const ZeroDataParallel::Options options{config.strategy == Strategy::kZero2, averaged_over,
                                          config.bucket_cap_mb};
  auto shards = std::make_unique<ZeroDataParallel>(std::move(parameters), group, options, values);
  if (task.stage_model() == nullptr) overlap_gather_with_forward(task.model(), *shards);
  return shards;
}

std::vector<NamedTensor> weights_of(const Task& task, const ShardedDataParallel* shards,
                                    const TensorLayouts& layouts) {
  const auto parameters = task.parameters();
  std::vector<NamedTensor> weights;
  if (shards == nullptr || !shards->divides_weights()) {
    for (const auto& p : parameters) weights.push_back({"model." + p.name, p.tensor.detach()});
    return weights;
  }
  for (const OwnShard& own : shards->own()) {
    if (own.shard.parameter >= parameters.size()) continue;  // below adapters
    weights.push_back({"model." + parameters[own.shard.parameter].name, own.value,
                       layout_of_shard(*shards, own.shard, layouts)});
  }
  return weights;
}

}  // namespace

DividedModel divide_model(Task& task, TrainedParameters trained, ProcessGroup& group,
                          const DistributedConfig& config, int averaged_over, FirstValues values) {
  const auto layouts = task.parameter_layouts();
  if (!divides_state(config.strategy) || group.size() == 1) {
    return {std::make_unique<DistributedDataParallel>(), nullptr, std::move(trained),
            weights_of(task, nullptr, layouts)};
  }
  std::unique_ptr<ShardedDataParallel> shards;
  if (config.strategy == Strategy::kZero3)
    shards = divide_weights(task, trained, group, averaged_over, values);
  else
    shards = divide_state(task, trained, group, config, averaged_over, values);
  auto* const held = shards.get();
  return {std::move(shards), held, shards_of(trained, *held, layouts),
          weights_of(task, held, layouts)};
}

}  // namespace ddp::train
