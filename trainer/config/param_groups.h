// Determines which parameters are trained, and how, from names and shapes alone, so that an
// estimate without a model and the optimizer of a run agree. Does not use LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "trainer/config/optimizer_config.h"

namespace ddp::train {

struct Config;

/// A parameter's role in its model; determines how it is trained by default.
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

/// The training options of all parameters of a group.
struct GroupOptions {
  bool frozen = false;  ///< If set, nothing else applies.
  OptimizerName optimizer = OptimizerName::kAdamW;
  double lr_mult = 1.0;
  double weight_decay = 0.0;
  bool operator==(const GroupOptions&) const = default;
};

struct ParameterGroup {
  std::string label;  ///< The patterns that selected it, or the roles of its parameters.
  GroupOptions options;
  std::vector<std::size_t> members;  ///< Indices into the model's parameters, ascending.
};

/// Returns the groups of a model; every parameter is in exactly one. For each parameter the first
/// match in trainer_config.freeze and then in optimizer_config.param_groups applies; options not
/// set there, and parameters without a match, follow the parameter's role. Throws UserError if a
/// pattern matches no parameter, if entries before another one match all of its parameters, if Muon
/// is to update something that is not a matrix, or if everything is frozen.
std::vector<ParameterGroup> resolve_param_groups(const Config& config,
                                                 const std::vector<ParameterShape>& parameters);

/// Whether the optimizer keeps its state of a parameter of `elements` in 8 bits. Smaller ones, such
/// as biases and norms, would gain little.
bool has_8_bit_state(int64_t elements, const OptimizerConfig& config);

/// Number of state values that the optimizer keeps per element of a group's parameters: 2 for Adam,
/// 1 or 0 for SGD.
int states_of(const GroupOptions& options, const OptimizerConfig& config);

/// Bytes of the state that the optimizer keeps of a parameter of `elements` in a group.
double state_bytes(int64_t elements, const GroupOptions& options, const OptimizerConfig& config);

/// Names of the parameters for which a run by `before` kept no state that an optimizer by `now` can
/// continue with: they were frozen, or had another optimizer.
std::set<std::string> parameters_without_state(const Config& before, const Config& now,
                                               const std::vector<ParameterShape>& parameters);

/// Returns the groups as a table for the log: a heading, then a line for each.
std::vector<std::string> group_table(const std::vector<ParameterGroup>& groups,
                                     const std::vector<ParameterShape>& parameters);

}  // namespace ddp::train
