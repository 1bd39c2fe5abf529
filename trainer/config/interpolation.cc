#include "trainer/config/interpolation.h"

#include <fmt/format.h>

#include <stdexcept>

#include "trainer/config/interpolation_parser.h"
#include "trainer/config/resolver.h"
#include "trainer/runtime/error.h"

namespace ddp::train {

void resolve_interpolations(Node& root, const Node* composed) {
  Node resolved = Resolver(root, composed).resolve_all();
  root = std::move(resolved);
}

Node select_value(const Node& root, const std::string& path) {
  return Resolver(root, &root).select_from_root(path);
}

Node container_behind(const Node& root, const std::vector<std::string>& path) {
  try {
    Node node = Resolver(root, &root).behind(path);
    return node.is_container() ? node : Node::null();
  } catch (const UserError&) {
    return Node::null();
  }
}

void check_interpolations(const Node& root) {
  for (const Node& item : root.items) check_interpolations(item);
  for (const Entry& entry : root.entries) check_interpolations(entry.value);
  if (!root.is_interpolation()) return;
  try {
    parse_interpolated(root.text);
  } catch (const std::invalid_argument& e) {
    throw UserError(fmt::format("{}: GrammarParseError: {}; write \\${{ for a plain ${{",
                                root.place.str(), e.what()));
  }
}

}  // namespace ddp::train
