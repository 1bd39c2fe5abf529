#include "trainer/optim/trained_parameters.h"

#include <algorithm>
#include <cstddef>

namespace ddp::train {

std::vector<ParameterShape> shapes_of(const std::vector<Parameter>& parameters) {
  std::vector<ParameterShape> shapes;
  for (const auto& p : parameters) shapes.push_back({p.name, p.tensor.sizes().vec(), p.role});
  return shapes;
}

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
  const auto groups = resolve_param_groups(config, shapes_of(parameters));
  for (const auto& group : groups) {
    for (const std::size_t i : group.members)
      parameters[i].tensor.set_requires_grad(!group.options.frozen);
  }
  return select_groups(parameters, groups,
                       [](const GroupOptions& options) { return !options.frozen; });
}

}  // namespace ddp::train
