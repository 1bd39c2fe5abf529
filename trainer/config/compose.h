// A configuration file and its overrides, put together into one tree.
#pragma once

#include <string>
#include <vector>

#include "trainer/config/overrides.h"
#include "trainer/config/tree.h"

namespace ddp::train {

/// Reads the file and applies the overrides. With the schema unknown keys in overrides are refused
/// with a suggestion and known ones need no +; without it Hydra's rule holds: only keys of the file
/// can be changed.
Node compose_config(const std::string& file, const std::vector<std::string>& overrides,
                    bool schema);

/// Applies one override to the tree, in Hydra's way; `may_create` says whether a change may bring a
/// key that the file does not hold (the schema knows it).
void apply_override(Node& root, const Override& change, bool may_create);

/// OmegaConf's merge: maps by key, everything else replaced. Throws UserError for a key that
/// `target` does not hold, unless `may_create`, and for a list over a map or a map over a list.
void merge(Node& target, const Node& value, bool may_create);

}  // namespace ddp::train
