// A configuration file and its overrides, put together into one tree.
#pragma once

#include <string>
#include <vector>

#include "trainer/config/overrides.h"
#include "trainer/config/tree.h"

namespace ddp::train {

/// Applies one override to the tree, in Hydra's way; `may_create` says whether a change may bring a
/// key that the file does not hold (the schema knows it).
void apply_override(Node& root, const Override& change, bool may_create);

}  // namespace ddp::train
