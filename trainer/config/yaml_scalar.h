// The type of a plain YAML scalar, by the rules of OmegaConf's loader (PyYAML 1.1 with OmegaConf's
// own float).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trainer/config/tree.h"

namespace ddp::train {

/// What a plain text is by its looks, as the end of a tag: null, bool, int, float, str, merge (<<)
/// or value (=).
std::string_view implicit_tag(std::string_view text);

/// What a tag makes of a text; nullopt when PyYAML would refuse it.
std::optional<Node> yaml_int(std::string_view text);
std::optional<Node> yaml_float(std::string_view text);
std::optional<Node> yaml_bool(std::string_view text);

/// A plain text with the type that implicit_tag() says; << and = are texts.
Node type_plain_scalar(std::string_view text);

}  // namespace ddp::train
