// One override applied to the composed tree, in Hydra's way.
#pragma once

#include "trainer/config/overrides.h"
#include "trainer/config/tree.h"

namespace ddp::train {

/// `may_create` says whether a change may bring a key that the tree does not hold (the schema knows
/// it). Throws UserError in Hydra's words.
void apply_override(Node& root, const Override& change, bool may_create);

}  // namespace ddp::train
