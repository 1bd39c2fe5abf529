// ${a.b}: values that refer to other values, resolved by OmegaConf's rules once the configuration
// is composed.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "trainer/config/tree.h"

namespace ddp::train {

/// What ${hydra:job.name} and the like stand for; keys as in Hydra's own configuration.
using HydraValues = std::map<std::string, std::string>;

/// job.name and runtime.cwd of this program.
HydraValues hydra_values();

/// Replaces every interpolation in the tree. Throws UserError with the place and the chain of keys.
void resolve_interpolations(Node& root, const HydraValues& hydra = {});

/// The value at the path, itself resolved; null when there is none or it is ???. Throws UserError.
Node select_value(const Node& root, const std::string& path);

/// Checks the grammar of every interpolation without resolving one. Throws UserError.
void check_interpolations(const Node& root);

}  // namespace ddp::train
