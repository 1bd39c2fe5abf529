// YAML text -> Node. yaml-cpp scans and parses; types, merge keys and further checks are ours.
#pragma once

#include <string>

#include "trainer/hydra/yaml/tree.h"

namespace ddp::train {

/// Reads one YAML document as OmegaConf's loader does: scalars typed by its rules, anchors and
/// merge keys resolved, duplicate keys rejected. Empty text gives null. Throws UserError with
/// source:line:column. `with_mark`: a byte order mark may lead.
Node read_yaml(const std::string& with_mark, const std::string& source);

/// OmegaConf.create(text): a text alone is read as YAML once more, and is a key without a value
/// then; empty text is an empty map. Scalars are returned as they are.
Node read_yaml_container(const std::string& text, const std::string& source);

}  // namespace ddp::train
