#include "trainer/config/compose.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

[[noreturn]] void fail(const Override& change, const std::string& what) {
  throw UserError(fmt::format("command line: {}: {}", change.text, what));
}

/// The child of that name: a map's key (also 1 for the integer key 1) or a list's index.
Node* child(Node& parent, const std::string& name) {
  if (Node* found = parent.find(name)) return found;
  std::size_t index = 0;
  const auto end = name.data() + name.size();
  const auto result = std::from_chars(name.data(), end, index);
  const bool is_index =
      parent.kind == Kind::kList && result.ptr == end && index < parent.items.size();
  return is_index ? &parent.items[index] : nullptr;
}

void merge_into(Node& target, const Node& value) {
  if (target.kind != Kind::kMap || value.kind != Kind::kMap) {
    target = value;
    return;
  }
  for (const Entry& entry : value.entries) {
    auto known = std::find_if(target.entries.begin(), target.entries.end(),
                              [&](const Entry& e) { return same_value(e.key, entry.key); });
    if (known == target.entries.end()) {
      target.entries.push_back(entry);
    } else {
      merge_into(known->value, entry.value);
    }
  }
}

void remove(Node& root, const Override& change) {
  const auto parts = split_path(change.key);
  Node* parent = &root;
  for (std::size_t i = 0; parent != nullptr && i + 1 < parts.size(); ++i)
    parent = child(*parent, parts[i]);
  Node* node = parent == nullptr ? nullptr : parent->find(parts.back());
  if (node == nullptr)
    fail(change, fmt::format("Could not delete from config. '{}' does not exist.", change.key));
  if (change.has_value && !same_value(*node, change.value)) {
    fail(change, fmt::format("Could not delete from config. The value of '{}' is {} and not {}.",
                             change.key, python_str(*node), python_str(change.value)));
  }
  std::erase_if(parent->entries, [&](const Entry& e) { return &e.value == node; });
}

Node* step_into(Node& parent, const std::string& name, bool may_create, const Place& place) {
  if (Node* found = child(parent, name)) return found;
  if (!may_create || parent.kind != Kind::kMap) return nullptr;
  Entry entry{Node::of(name), Node::map()};
  entry.key.place = place;
  entry.value.place = place;
  parent.entries.push_back(std::move(entry));
  return &parent.entries.back().value;
}

}  // namespace

void apply_override(Node& root, const Override& change, bool may_create) {
  if (change.type == OverrideType::kDelete) return remove(root, change);
  const bool create = may_create || change.type != OverrideType::kChange;
  const auto parts = split_path(change.key);
  Node* node = &root;
  bool existed = true;
  for (const std::string& part : parts) {
    existed = child(*node, part) != nullptr;
    // A scalar on the way gives way to a map, as in OmegaConf.update.
    if (!existed && !node->is_container()) *node = Node::map();
    node = step_into(*node, part, create, change.value.place);
    if (node == nullptr) {
      fail(change, fmt::format("Could not override '{}'. To append to your config use +{}",
                               change.key, change.text));
    }
  }
  if (change.type == OverrideType::kAdd && existed && !change.value.is_container()) {
    fail(change, fmt::format("Could not append to config. An item is already at '{}'. Either "
                             "remove + prefix: '{}' or add a "
                             "second + to add or override '{}': '+{}'",
                             change.key, change.text.substr(1), change.key, change.text));
  }
  if (existed) {
    merge_into(*node, change.value);
  } else {
    *node = change.value;
  }
  node->place = change.value.place;
}

}  // namespace ddp::train
