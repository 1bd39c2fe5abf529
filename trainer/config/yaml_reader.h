// YAML text -> Node, as PyYAML and OmegaConf read it: characters (yaml_text), tokens
// (yaml_scanner), a graph with tags and aliases (yaml_graph), values.
#pragma once

#include <string>

#include "trainer/config/tree.h"

namespace ddp::train {

/// Reads one YAML document as OmegaConf's loader does: scalars typed by its rules, anchors and
/// merge keys resolved, duplicate keys refused. Empty text gives null. Throws UserError with
/// source:line:column.
Node read_yaml(const std::string& text, const std::string& source);

}  // namespace ddp::train
