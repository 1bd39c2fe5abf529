// OmegaConf's merge of trees, and Hydra's application of an override.
#pragma once

#include <string>
#include <vector>

#include "trainer/hydra/override/overrides.h"
#include "trainer/hydra/yaml/tree.h"

namespace ddp::train {

/// Merges `value` into the node at `path` of `root`: maps by key, everything else replaced; a ???
/// changes nothing; an interpolation that refers to a map or a list is replaced by a copy of it.
/// Throws UserError for a key that does not exist yet, unless `may_create`, and for a list over a
/// map or a map over a list.
void merge(Node& root, const std::vector<std::string>& path, Node& target, const Node& value,
           bool may_create);

/// `may_create`: whether a change may add a key that the tree does not have (the schema knows
/// it). Throws UserError in Hydra's words.
void apply_override(Node& root, const Override& change, bool may_create);

}  // namespace ddp::train
