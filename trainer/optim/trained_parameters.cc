#include "trainer/optim/trained_parameters.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>

namespace ddp::train {

std::vector<ParameterShape> shapes_of(const std::vector<Parameter>& parameters) {
  std::vector<ParameterShape> shapes;
  for (const auto& p : parameters) shapes.push_back({p.name, p.tensor.sizes().vec(), p.role});
  return shapes;
}

namespace {

/// `groups` of the parameters `whole`, with those members that `own` has, by their place there.
std::vector<ParameterGroup> own_groups(std::vector<ParameterGroup> groups,
                                       const std::vector<ParameterShape>& whole,
                                       const std::vector<Parameter>& own) {
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < own.size(); ++i) places.emplace(own[i].name, i);
  for (auto& group : groups) {
    std::vector<std::size_t> members;
    for (const std::size_t i : group.members) {
      const auto place = places.find(whole[i].name);
      if (place != places.end()) members.push_back(place->second);
    }
    group.members = std::move(members);
  }
  std::erase_if(groups, [](const auto& group) { return group.members.empty(); });
  return groups;
}

}  // namespace

TrainedParameters select_groups(const std::vector<Parameter>& parameters,
                                const std::vector<ParameterGroup>& groups,
                                const std::function<bool(const GroupOptions&)>& keep) {
  TrainedParameters selected;
  std::vector<std::size_t> chosen;
  for (const auto& group : groups) {
    if (!keep(group.options)) continue;
    chosen.insert(chosen.end(), group.members.begin(), group.members.end());
    selected.groups.push_back(group);
  }
  std::sort(chosen.begin(), chosen.end());
  for (const std::size_t i : chosen) selected.parameters.push_back(parameters[i]);
  for (auto& group : selected.groups) {
    for (std::size_t& i : group.members) {
      const auto place = std::lower_bound(chosen.begin(), chosen.end(), i);
      i = static_cast<std::size_t>(place - chosen.begin());
    }
  }
  return selected;
}

TrainedParameters trained_parameters(const Config& config,
                                     const std::vector<Parameter>& parameters) {
  return trained_parameters(config, parameters, shapes_of(parameters));
}

TrainedParameters trained_parameters(const Config& config, const std::vector<Parameter>& parameters,
                                     const std::vector<ParameterShape>& whole) {
  const auto groups = own_groups(resolve_param_groups(config, whole), whole, parameters);
  for (const auto& group : groups) {
    for (const std::size_t i : group.members)
      parameters[i].tensor.set_requires_grad(!group.options.frozen);
  }
  return select_groups(parameters, groups,
                       [](const GroupOptions& options) { return !options.frozen; });
}

}  // namespace ddp::train
