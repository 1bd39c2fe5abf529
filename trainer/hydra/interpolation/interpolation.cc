#include "trainer/hydra/interpolation/interpolation.h"

#include <algorithm>
#include <stdexcept>

#include "trainer/hydra/interpolation/resolver.h"
#include "trainer/hydra/interpolation/value_parser.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

bool holds(const Node& tree, const Node* node) {
  return &tree == node ||
         std::any_of(tree.items.begin(), tree.items.end(),
                     [node](const Node& item) { return holds(item, node); }) ||
         std::any_of(tree.entries.begin(), tree.entries.end(),
                     [node](const Entry& entry) { return holds(entry.value, node); });
}

}  // namespace

void resolve_interpolations(Node& root, const Node* composed) {
  Node resolved = Resolver(root, composed).resolve_all();
  root = std::move(resolved);
}

Node select_value(const Node& root, const std::string& path) {
  Resolver resolver(root, &root);
  const Node* found = resolver.node_at(path);
  return found == nullptr ? Node::null() : *found;
}

Node container_behind(const Node& root, const std::vector<std::string>& path) {
  try {
    Node node = Resolver(root, &root).behind(path);
    return node.is_container() ? node : Node::null();
  } catch (const UserError&) {
    return Node::null();
  }
}

Node* container_at(Node& root, const std::string& path) {
  if (path.empty()) return &root;
  Resolver resolver(root, &root);
  const Node* found = resolver.node_at(path);
  const bool own = found != nullptr && found->is_container() && holds(root, found);
  return own ? const_cast<Node*>(found) : nullptr;
}

void check_interpolations(const Node& root) {
  for (const Node& item : root.items) check_interpolations(item);
  for (const Entry& entry : root.entries) check_interpolations(entry.value);
  if (!root.is_interpolation()) return;
  try {
    parse_interpolated(root.text);
  } catch (const std::invalid_argument& e) {
    fail_with(root.place, e.what());
  }
}

}  // namespace ddp::train
