// ${a.b}: values that refer to other values, resolved by OmegaConf's rules once the configuration
// is composed.
#pragma once

#include <string>
#include <vector>

#include "trainer/hydra/yaml/tree.h"

namespace ddp::train {

/// Replaces every interpolation in the tree, but for those below the top-level key `hydra`, whose
/// values are needed one at a time. ${hydra:job.name} is hydra.job.name of `composed` (a tree that
/// still has that block). Throws UserError with the place and the chain of keys.
void resolve_interpolations(Node& root, const Node* composed = nullptr);

/// Returns the resolved value at the path; null if there is none or it is ???. Throws UserError.
Node select_value(const Node& root, const std::string& path);

/// The map or list that the interpolation at the path refers to, not resolved itself; null if it
/// refers to something else or to nothing.
Node container_behind(const Node& root, const std::vector<std::string>& path);

/// The map or list of the tree at the path, or the one that an interpolation on the way refers to;
/// nullptr for none. Throws UserError.
Node* container_at(Node& root, const std::string& path);

/// Checks the grammar of every interpolation without resolving one. Throws UserError.
void check_interpolations(const Node& root);

}  // namespace ddp::train
