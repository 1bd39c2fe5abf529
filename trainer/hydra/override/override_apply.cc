#include "trainer/hydra/override/override_apply.h"

#include <algorithm>

#include "trainer/hydra/interpolation/interpolation.h"
#include "trainer/hydra/yaml/python_number.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

class Merger {
 public:
  Merger(Node& root, std::vector<std::string> path, bool may_create)
      : root_(root), path_(std::move(path)), may_create_(may_create) {}

  void merge(Node& target, const Node& value) {
    if (target.is_container() && value.is_container() && target.kind != value.kind)
      fail_kinds(target, value);
    if (target.kind != Kind::kMap || value.kind != Kind::kMap) {
      target = value;
      return;
    }
    for (const Entry& entry : value.entries) merge_entry(target, entry);
  }

 private:
  [[noreturn]] static void fail_kinds(const Node& target, const Node& value) {
    const auto name = [](const Node& node) { return node.kind == Kind::kMap ? "map" : "list"; };
    fail_at(value.place, "cannot merge a {1} into a {0}; give a {0}", name(target), name(value));
  }

  void merge_entry(Node& target, const Entry& entry) {
    const auto known = std::find_if(target.entries.begin(), target.entries.end(),
                                    [&](const Entry& e) { return same_key(e.key, entry.key); });
    if (known != target.entries.end()) {
      path_.push_back(python_str(entry.key));
      merge_known(known->value, entry.value);
      path_.pop_back();
      return;
    }
    if (!may_create_) {
      fail_at(entry.key.place, "no such key: '{}'; prefix the override with + to add it",
              python_str(entry.key));
    }
    target.entries.push_back(entry);
  }

  void merge_known(Node& target, const Node& value) {
    if (target.is_interpolation()) {
      Node referred = container_behind(root_, path_);
      if (referred.is_container()) target = std::move(referred);
    }
    if (!value.is_missing()) merge(target, value);
  }

  Node& root_;
  std::vector<std::string> path_;
  const bool may_create_;
};

void remove(Node& root, const Override& change) {
  const Node value = select_value(root, change.key);
  if (value.kind == Kind::kNull)
    fail_at(change.value.place,
            "'{}' is not in the configuration, so ~ cannot remove it; check the name", change.key);
  const bool with_value = change.has_value && change.value.kind != Kind::kNull;
  if (with_value && !python_equal(value, change.value)) {
    fail_at(change.value.place, "'{0}' is {1}, not {2}; write ~{0} to remove it whatever its value",
            change.key, shown(python_str(value)), shown(python_str(change.value)));
  }
  const std::size_t dot = change.key.rfind('.');
  Node* parent = container_at(root, dot == std::string::npos ? "" : change.key.substr(0, dot));
  if (parent == nullptr) return;  // in what a resolver has made
  if (parent->kind != Kind::kMap)
    fail_with(change.value.place, "~ cannot remove an item of a list; give the whole list");
  const std::string name = change.key.substr(dot == std::string::npos ? 0 : dot + 1);
  std::erase_if(parent->entries, [&name](const Entry& entry) {
    return entry.key.kind == Kind::kString && entry.key.text == name;
  });
}

/// Creates the key in a map; a list does not grow.
Node& created(Node& parent, const std::string& name, const Override& change) {
  if (parent.kind != Kind::kMap) {
    fail_at(change.value.place, "the list has no item '{}' (length {}); give the whole list", name,
            parent.items.size());
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
    Node* next = node->child(part);
    existed = next != nullptr;
    if (!existed && !may_create) {
      fail_at(change.value.place, "'{}' is not in the configuration; to add it, write +{}",
              change.key, change.text);
    }
    node = existed ? next : &created(*node, part, change);
  }
  return *node;
}

}  // namespace

void merge(Node& root, const std::vector<std::string>& path, Node& target, const Node& value,
           bool may_create) {
  Merger(root, path, may_create).merge(target, value);
}

void apply_override(Node& root, const Override& change, bool may_create) {
  check_interpolations(change.value);
  if (change.type == OverrideType::kDelete) return remove(root, change);
  const bool create = may_create || change.type != OverrideType::kChange;
  if (change.type == OverrideType::kAdd && !change.value.is_container() &&
      select_value(root, change.key).kind != Kind::kNull) {
    fail_at(
        change.value.place,
        "'{}' is already in the configuration; write {} to change it, or +{} to set it in any case",
        change.key, change.text.substr(1), change.text);
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
