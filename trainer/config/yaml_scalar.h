// The type of a plain YAML scalar, by the rules of OmegaConf's loader (PyYAML 1.1 with OmegaConf's
// own float).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trainer/config/tree.h"

namespace ddp::train {

/// null, bool, int (octal 010, 0x, 0b, 1_000, 1:30), float (1e-3, .5, .inf) or else string.
Node type_plain_scalar(std::string_view text);

/// What an explicit tag !!int, !!float, !!bool makes of a text; nullopt when Python would refuse
/// it.
std::optional<Node> yaml_int(std::string_view text);
std::optional<Node> yaml_float(std::string_view text);
std::optional<Node> yaml_bool(std::string_view text);

}  // namespace ddp::train
