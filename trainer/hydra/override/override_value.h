// The value of an override, what follows the "=", in Hydra's grammar with its functions:
// int(1.5), str([1,2]), sort(3,1), choice(a,b), ...
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/hydra/override/sweep.h"

namespace ddp::train {

/// A value in an override: a node, or a sweep over several.
struct OverrideValue {
  SweepItem item;
  std::optional<Sweep> sweep;
};

/// An empty text is an empty string. Throws UserError that begins with `place` and explains how to
/// quote what breaks the grammar.
OverrideValue parse_override_value(std::string_view text, const Place& place);

struct FunctionArgument {
  std::string name;  ///< "" for one without.
  OverrideValue value;
};

/// Throws std::invalid_argument for an unknown function, a wrong argument, and a value that cannot
/// be cast.
OverrideValue call_function(const std::string& name, std::vector<FunctionArgument> arguments);

/// The sweep over these values, none of which may be a sweep itself, or std::invalid_argument.
Sweep choice_of(const std::vector<OverrideValue>& values);

}  // namespace ddp::train
