// Node -> JSON and YAML text.
#pragma once

#include <string>

#include "trainer/hydra/yaml/tree.h"

namespace ddp::train {

/// One line of JSON, keys in the tree's order, non-finite floats as {"$float":"inf"}.
std::string node_to_json(const Node& node);

/// Block style; strings in quotes where YAML would read them as something else.
std::string node_to_yaml(const Node& node);

}  // namespace ddp::train
