#include "trainer/config/override_apply.h"

#include <fmt/format.h>

#include <charconv>

#include "trainer/config/hydra_block.h"
#include "trainer/config/interpolation.h"
#include "trainer/config/merge.h"
#include "trainer/config/message.h"
#include "trainer/config/python_number.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

[[noreturn]] void fail(const Override& change, const std::string& what) {
  throw UserError(fmt::format("command line: {}: {}", change.text, what));
}

/// The child of that name, or of that index in a list.
Node* child(Node& parent, const std::string& name) {
  if (parent.kind == Kind::kMap) return parent.find(name);
  std::size_t index = 0;
  const auto* const end = name.data() + name.size();
  const auto result = std::from_chars(name.data(), end, index);
  const bool is_index =
      parent.kind == Kind::kList && result.ptr == end && index < parent.items.size();
  return is_index ? &parent.items[index] : nullptr;
}

void remove(Node& root, const Override& change) {
  const Node value = select_value(root, change.key);
  if (value.kind == Kind::kNull)
    fail(change, fmt::format("Could not delete from config. '{}' does not exist.", change.key));
  if (is_hydra_field(change.key))
    fail(change, "Could not delete from config. It is a field of Hydra's own; set it instead");
  const bool with_value = change.has_value && change.value.kind != Kind::kNull;
  if (with_value && !python_equal(value, change.value)) {
    fail(change,
         fmt::format("Could not delete from config. The value of '{}' is {} and not {}.",
                     change.key, shown(python_str(value)), shown(python_str(change.value))));
  }
  const std::size_t dot = change.key.rfind('.');
  Node* parent = container_at(root, dot == std::string::npos ? "" : change.key.substr(0, dot));
  if (parent == nullptr) return;  // in what a resolver has made
  if (parent->kind != Kind::kMap)
    fail(change, "Could not delete from config. It is an item of a list; give the whole list");
  const std::string name = change.key.substr(dot == std::string::npos ? 0 : dot + 1);
  std::erase_if(parent->entries, [&name](const Entry& entry) {
    return entry.key.kind == Kind::kString && entry.key.text == name;
  });
}

/// Creates the key in a map; a list does not grow.
Node& created(Node& parent, const std::string& name, const Override& change) {
  if (parent.kind != Kind::kMap) {
    fail(change,
         fmt::format("'{}' is not an index of the list, which has {} items; give the whole list",
                     name, parent.items.size()));
  }
  Entry entry{Node::of(name), Node::map()};
  entry.key.place = change.value.place;
  entry.value.place = change.value.place;
  parent.entries.push_back(std::move(entry));
  return parent.entries.back().value;
}

/// The node to change, its way created where that is allowed.
Node& target_of(Node& root, const Override& change, bool may_create, bool& existed) {
  Node* node = &root;
  for (const std::string& part : split_path(change.key)) {
    // A scalar on the way gives way to a map, as in OmegaConf.update.
    if (!node->is_container()) *node = Node::map();
    Node* next = child(*node, part);
    existed = next != nullptr;
    if (!existed && !may_create) {
      fail(change, fmt::format("Could not override '{}'. To append to your config use +{}",
                               change.key, change.text));
    }
    node = existed ? next : &created(*node, part, change);
  }
  return *node;
}

}  // namespace

void apply_override(Node& root, const Override& change, bool may_create) {
  check_interpolations(change.value);
  if (change.type == OverrideType::kDelete) return remove(root, change);
  const bool create = may_create || change.type != OverrideType::kChange;
  if (change.type == OverrideType::kAdd && !change.value.is_container() &&
      select_value(root, change.key).kind != Kind::kNull) {
    fail(change, fmt::format("Could not append to config. An item is already at '{}'. Either "
                             "remove + prefix: '{}' or "
                             "add a second + to add or override '{}': '+{}'",
                             change.key, change.text.substr(1), change.key, change.text));
  }
  bool existed = false;
  Node& target = target_of(root, change, create, existed);
  if (existed && target.is_container() && change.value.is_container()) {
    merge(root, split_path(change.key), target, change.value, create);
  } else {
    target = change.value;
  }
  target.place = change.value.place;
}

}  // namespace ddp::train
