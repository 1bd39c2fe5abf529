// Selects the trained parameters of a model.
#pragma once

#include <functional>
#include <vector>

#include "trainer/config/param_groups.h"
#include "trainer/optim/optimizer.h"

namespace ddp::train {

struct Config;

std::vector<ParameterShape> shapes_of(const std::vector<Parameter>& parameters);

/// The parameters of the groups that `keep` accepts, in their order, with those groups.
TrainedParameters select_groups(const std::vector<Parameter>& parameters,
                                const std::vector<ParameterGroup>& groups,
                                const std::function<bool(const GroupOptions&)>& keep);

/// Disables the gradients of the parameters that the configuration freezes, and enables those of
/// the others, which it returns. Throws UserError as resolve_param_groups() does.
TrainedParameters trained_parameters(const Config& config,
                                     const std::vector<Parameter>& parameters);
/// The same for a rank with some of a model's parameters, `whole`: its groups are those of the
/// whole model.
TrainedParameters trained_parameters(const Config& config, const std::vector<Parameter>& parameters,
                                     const std::vector<ParameterShape>& whole);

}  // namespace ddp::train
