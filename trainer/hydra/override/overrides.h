// Command-line overrides in Hydra's grammar: a.b=1, +a.b=1, ++a.b=1, ~a.b; values have the types
// that Hydra gives them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/hydra/override/override_value.h"

namespace ddp::train {

enum class OverrideType { kChange, kAdd, kForceAdd, kDelete };

struct Override {
  OverrideType type = OverrideType::kChange;
  std::string text;                    ///< As given on the command line.
  std::string key;                     ///< "a.b", or a config group: "db/engine"
  std::optional<std::string> package;  ///< `group@package=option`
  bool has_value = false;
  Node value;                  ///< Null for a sweep.
  std::string value_text;      ///< The value as written in an override.
  std::optional<Sweep> sweep;  ///< Several values: they need --multirun.
};

/// Throws UserError that shows the override and, where the value breaks the grammar, how to quote
/// it.
Override parse_override(const std::string& text);

/// Throws UserError, in Hydra's words, for an override with several values.
void refuse_sweeps(const std::vector<Override>& overrides);

}  // namespace ddp::train
