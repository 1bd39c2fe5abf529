#include "trainer/hydra/compose/default_element.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

namespace ddp::train {
namespace {

constexpr std::string_view kGlobal = "_global_";

std::string without_slash(const std::string& path) {
  return path.starts_with('/') ? path.substr(1) : path;
}

std::string dotted(std::string path) {
  std::replace(path.begin(), path.end(), '/', '.');
  return path;
}

/// "a/b/c" -> "a/b"; "" when there is no slash.
std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

std::string below(const std::string& base, const std::string& path) {
  if (base.empty()) return path;
  return path.empty() ? base : base + "/" + path;
}

/// "group@package" -> group, package; "package:new" is Hydra 1.0's way to rename.
void split_package(const std::string& text, DefaultElement& element) {
  const std::size_t at = text.find('@');
  element.path = text.substr(0, at);
  if (at == std::string::npos) return;
  element.package = text.substr(at + 1, text.find(':', at) - at - 1);
  if (element.package == "_here_") element.package = "";
}

/// "optional override db" -> db
void take_keywords(DefaultElement& element) {
  std::istringstream words(element.path);
  for (std::string word; words >> word; element.path = word) {
    element.optional = element.optional || word == "optional";
    element.override = element.override || word == "override";
  }
}

DefaultElement config_item(const Node& item) {
  DefaultElement element;
  split_package(item.text, element);
  if (element.is_self() && element.package)
    fail_with(item.place, "_self_ cannot have a package; write _self_");
  return element;
}

DefaultElement group_item(const Node& item) {
  if (item.entries.size() != 1) {
    fail_with(item.place, item.entries.empty()
                              ? "no group name in {}; write group: option"
                              : "several groups in one item; write one `- group: option` per line");
  }
  const Entry& entry = item.entries.front();
  if (entry.key.kind != Kind::kString)
    fail_with(entry.key.place, "a group must be a name; write group: option");
  DefaultElement element;
  element.kind = DefaultKind::kGroup;
  split_package(entry.key.text, element);
  take_keywords(element);
  if (element.path.empty()) fail_with(entry.key.place, "no group name; write group: option");
  element.option = GroupOption::of(entry.value);
  return element;
}

}  // namespace

GroupOption GroupOption::of(const Node& value) {
  const auto name_of = [](const Node& node) {
    if (node.kind == Kind::kString) return node.text;
    fail_at(node.place, "a group's option must be a name, not {}; quote it", python_type(node));
  };
  GroupOption option;
  if (value.kind == Kind::kList) {
    option.several.emplace();
    for (const Node& item : value.items) option.several->push_back(name_of(item));
  } else if (value.kind != Kind::kNull) {
    option.name = name_of(value);
  }
  return option;
}

std::string GroupOption::str() const {
  return several ? fmt::format("[{}]", fmt::join(*several, ",")) : name.value_or("null");
}

DefaultElement DefaultElement::self() { return config("_self_"); }

DefaultElement DefaultElement::config(std::string path) {
  DefaultElement element;
  element.path = std::move(path);
  return element;
}

bool DefaultElement::is_self() const {
  return kind == DefaultKind::kConfig ? path == "_self_" : option.name == "_self_";
}

bool DefaultElement::is_missing() const { return !option.several && name() == "???"; }

bool DefaultElement::is_interpolation() const {
  const std::string text = kind == DefaultKind::kConfig ? path : option.name.value_or("");
  return !option.several && text.find("${") != std::string::npos;
}

void DefaultElement::set_parent(const std::string& base_dir, const std::string& package_of_parent) {
  parent_base_dir = base_dir;
  parent_package = package_of_parent;
  const std::size_t at = package ? package->find("_group_") : std::string::npos;
  if (at == std::string::npos) return;
  package = fmt::format("{}.{}", kGlobal,
                        package->replace(at, std::string("_group_").size(), dotted(group_path())));
}

void DefaultElement::set_package_header(const std::optional<std::string>& header) {
  if (!header) return;
  package_header = *header;
  const bool absolute = *header == kGlobal || header->starts_with(fmt::format("{}.", kGlobal));
  if (!absolute) package_header = fmt::format("{}.{}", kGlobal, *header);
}

std::optional<std::string> DefaultElement::name() const {
  if (kind == DefaultKind::kGroup) return option.name;
  return path.substr(path.rfind('/') + 1);
}

std::string DefaultElement::group_path() const {
  const bool absolute = path.starts_with('/');
  std::string group = without_slash(path);
  if (kind == DefaultKind::kConfig) group = folder_of(group);
  return absolute ? group : below(parent_base_dir, group);
}

std::string DefaultElement::config_path() const {
  if (kind == DefaultKind::kGroup) return group_path() + "/" + option.name.value_or("");
  return path.starts_with('/') ? without_slash(path) : below(parent_base_dir, path);
}

std::string DefaultElement::final_package(bool use_header) const {
  const std::string own = without_slash(path);
  std::string last = dotted(kind == DefaultKind::kGroup ? own : folder_of(own));
  if (package) {
    last = *package;
  } else if (use_header && package_header) {
    last = *package_header;
  }
  std::string all = parent_package;
  if (!all.empty() && !last.empty()) all += '.';
  all += last;
  const std::size_t global = all.rfind(kGlobal);
  if (global == std::string::npos) return all;
  const std::size_t rest = global + kGlobal.size() + 1;
  return rest < all.size() ? all.substr(rest) : "";
}

std::string DefaultElement::override_key() const {
  std::string group = group_path();
  std::string target = final_package(false);
  if (target == dotted(group)) return group;
  if (target.empty()) target = kGlobal;
  return group + "@" + target;
}

std::vector<DefaultElement> parse_defaults(const Node& list) {
  if (list.is_missing()) return {};
  if (list.kind != Kind::kList) {
    fail_at(list.place, "defaults must be a list, not {}; write `- item` lines",
            list.kind == Kind::kMap ? "mapping" : python_type(list));
  }
  std::vector<DefaultElement> elements;
  for (const Node& item : list.items) {
    if (item.kind != Kind::kString && item.kind != Kind::kMap)
      fail_at(item.place, "an item of defaults cannot be of type {}; write `- group: option`",
              python_type(item));
    elements.push_back(item.kind == Kind::kString ? config_item(item) : group_item(item));
    elements.back().place = item.place;
  }
  return elements;
}

}  // namespace ddp::train
