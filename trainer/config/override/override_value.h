// The value of an override, what stands behind the "=", in Hydra's grammar with its functions:
// int(1.5), str([1,2]), sort(3,1), choice(a,b), ...
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/config/override/sweep.h"

namespace ddp::train {

/// What a value in an override is: a node, or a sweep over several.
struct OverrideValue {
  SweepItem item;
  std::optional<Sweep> sweep;
};

/// A call as the parser has read it; a named argument comes with its name, others with "".
struct OverrideCall {
  struct Argument {
    std::string name;
    OverrideValue value;
  };
  std::string name;
  std::vector<Argument> arguments;
};

/// An empty text is an empty string. Throws UserError that shows `override_text` and how to quote
/// what breaks the grammar.
OverrideValue parse_override_value(const std::string& text, const std::string& override_text);

/// Throws std::invalid_argument for an unknown function, a wrong argument, and a value that cannot
/// be cast.
OverrideValue evaluate_override_call(const OverrideCall& call);

}  // namespace ddp::train
