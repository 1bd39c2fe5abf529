#include "trainer/config/merge.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/config/interpolation.h"
#include "trainer/runtime/error.h"

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
    const auto name = [](const Node& node) {
      return node.kind == Kind::kMap ? "DictConfig" : "ListConfig";
    };
    throw UserError(fmt::format("{}: Cannot merge {} with {}; give a {} here", value.place.str(),
                                name(target), name(value),
                                target.kind == Kind::kMap ? "map" : "list"));
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
      throw UserError(
          fmt::format("{}: Key '{}' is not in struct; to add it prefix the override with +",
                      entry.key.place.str(), python_str(entry.key)));
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

}  // namespace

void merge(Node& root, const std::vector<std::string>& path, Node& target, const Node& value,
           bool may_create) {
  Merger(root, path, may_create).merge(target, value);
}

}  // namespace ddp::train
