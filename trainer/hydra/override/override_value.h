// The value of an override, what follows the "=", in Hydra's grammar with its functions and sweeps:
// int(1.5), str([1,2]), sort(3,1), a,b  choice(a,b)  range(1,4)  glob(*)
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/hydra/yaml/tree.h"

namespace ddp::train {

enum class SweepKind { kSimpleChoice, kChoice, kRange, kGlob };

/// A value and its text in an override ("'x y'" with its quotes).
struct SweepItem {
  Node value;
  std::string text;
};

struct Sweep {
  SweepKind kind = SweepKind::kSimpleChoice;
  std::vector<SweepItem> items;               ///< None of kGlob.
  std::vector<std::string> include, exclude;  ///< kGlob
};

/// range(start, stop, step) of numbers: ints if all three are, else floats. Throws
/// std::invalid_argument for a step of 0 and for too many values.
Sweep range_sweep(const Node& start, const Node& stop, const Node& step);

/// The values in their order, each as an override writes it. `options` are the names in the config
/// group, for glob.
std::vector<std::string> sweep_values(const Sweep& sweep, const std::vector<std::string>& options);

/// Returns an override's text of a value: null, True, 1e-05, text with special characters escaped.
std::string override_text(const Node& value);

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
