// Node -> JSON and YAML text.
#pragma once

#include <string>

#include "trainer/config/tree.h"

namespace ddp::train {

/// One line of JSON, keys in the tree's order, non-finite floats as {"$float":"inf"}.
std::string node_to_json(const Node& node);

/// Block style; strings in quotes where YAML would read them as something else.
std::string node_to_yaml(const Node& node);

/// The node at a dotted path of string keys, or nullptr.
const Node* find_path(const Node& root, const std::string& path);

/// Sets a dotted path, creating the maps on the way.
void set_path(Node& root, const std::string& path, Node value);

}  // namespace ddp::train
