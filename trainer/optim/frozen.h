// Parameters that stay as they are.
#pragma once

#include <string>
#include <vector>

#include "trainer/optim/optimizer.h"

namespace ddp::train {

/// Switches off the gradients of the parameters whose names match one of `patterns` (shell
/// patterns, as transformer.h.0.*), and returns the others. Throws UserError for a pattern that
/// matches none, and when nothing is left to train.
std::vector<Parameter> freeze(const std::vector<Parameter>& parameters,
                              const std::vector<std::string>& patterns);

}  // namespace ddp::train
