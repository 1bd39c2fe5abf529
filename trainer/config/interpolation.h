// ${a.b}: values that refer to other values, resolved once the configuration is composed.
#pragma once

#include "trainer/config/tree.h"

namespace ddp::train {

/// Replaces every interpolation in the tree. Throws UserError with the place and the chain of keys.
void resolve_interpolations(Node& root);

}  // namespace ddp::train
