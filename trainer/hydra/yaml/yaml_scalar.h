// The type of a YAML scalar: YAML 1.1, with OmegaConf's floats (1e-3 is one).
#pragma once

#include <optional>
#include <string_view>

#include "trainer/hydra/yaml/tree.h"

namespace ddp::train {

/// A text without quotes: null, bool, int, float or itself. nullopt for an integer beyond 64 bits.
std::optional<Node> plain_scalar(std::string_view text);

/// Converts a text with a tag such as `!!int`; nullopt if it does not match, or the tag is unknown.
std::optional<Node> tagged_scalar(std::string_view tag, std::string_view text);

}  // namespace ddp::train
