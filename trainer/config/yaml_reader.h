// YAML text -> Node. The only file of trainer that sees yaml-cpp is yaml_reader.cc.
#pragma once

#include <string>

#include "trainer/config/tree.h"

namespace ddp::train {

/// Reads one YAML document as OmegaConf's loader does: scalars typed by its rules, anchors and
/// merge keys resolved, duplicate keys refused. Empty text gives null. Throws UserError with
/// source:line:column.
Node read_yaml(const std::string& with_mark, const std::string& source);

}  // namespace ddp::train
