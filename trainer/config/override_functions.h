// The functions of Hydra's override grammar: int(1.5), str([1,2]), sort(3,1), choice(a,b), ...
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trainer/config/tree.h"

namespace ddp::train {

/// A call as the parser has read it; a named argument comes with its name, others with "".
struct OverrideCall {
  std::string name;
  std::vector<std::pair<std::string, Node>> arguments;
};

/// Casts and sort give a value. Throws std::invalid_argument for an unknown function, a value that
/// cannot be cast, and for the functions that describe a sweep.
Node evaluate_override_call(const OverrideCall& call);

}  // namespace ddp::train
