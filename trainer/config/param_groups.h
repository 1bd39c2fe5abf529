// Which parameters are trained, and how: from names and shapes alone, so that an estimate without a
// model and the optimizer of a run agree. No LibTorch in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "trainer/config/config.h"

namespace ddp::train {

/// What a parameter is to its model; decides how it is trained by default.
enum class ParameterRole {
  kHidden,     ///< A matrix between hidden layers.
  kLinear,     ///< Another weight of a linear layer or convolution, such as the output layer's.
  kEmbedding,  ///< A table of embeddings.
  kOther,      ///< Biases and norms.
};

struct ParameterShape {
  std::string name;
  std::vector<int64_t> sizes;
  ParameterRole role = ParameterRole::kOther;

  int64_t count() const;
};

/// How all parameters of a group are trained.
struct GroupOptions {
  bool frozen = false;  ///< If set, nothing else applies.
  OptimizerName optimizer = OptimizerName::kAdamW;
  double lr_mult = 1.0;
  double weight_decay = 0.0;
  bool operator==(const GroupOptions&) const = default;
};

struct ParameterGroup {
  std::string label;  ///< The patterns that chose it, or the roles of its parameters.
  GroupOptions options;
  std::vector<std::size_t> members;  ///< Indices into the model's parameters, ascending.
};

/// The table of a model: every parameter is in one group. For each parameter the first match counts
/// of trainer_config.freeze and then the entries of optimizer_config.param_groups; what that entry
/// does not set, and all of what nothing matches, follows from the parameter's role. Throws
/// UserError if a pattern matches no parameter, if entries before another one match all of its
/// parameters, if Muon is to update something that is not a matrix, or if everything is frozen.
std::vector<ParameterGroup> resolve_param_groups(const Config& config,
                                                 const std::vector<ParameterShape>& parameters);

/// Numbers of the parameters' size that the optimizer keeps for a group, for each of its
/// parameters' numbers: 2 of Adam, 1 or 0 of SGD.
int states_of(const GroupOptions& options, const OptimizerConfig& config);

/// Names of the parameters for which a run by `before` kept no state that an optimizer by `now` can
/// continue with: they were frozen, or had another optimizer.
std::set<std::string> parameters_without_state(const Config& before, const Config& now,
                                               const std::vector<ParameterShape>& parameters);

/// The groups as a table for people: a heading, then a line for each.
std::vector<std::string> group_table(const std::vector<ParameterGroup>& groups,
                                     const std::vector<ParameterShape>& parameters);

}  // namespace ddp::train
