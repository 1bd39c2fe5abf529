#include "trainer/hydra/compose/known_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "trainer/hydra/compose/hydra_block.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {

/// The keys without a value, and the place of the first.
struct KnownKeys::Missing {
  std::vector<std::string> keys;
  std::string place;
};

KnownKeys::KnownKeys(const std::vector<std::string>& paths,
                     std::map<std::string, std::string> elsewhere)
    : paths_(paths), elsewhere_(std::move(elsewhere)) {
  for (const std::string& path : paths_) {
    if (!path.starts_with("hydra.")) set_path(tree_, path, Node::null());
  }
  for (const std::string& path : hydra_paths()) set_path(tree_, path, Node::null());
}

/// What may stand directly under a section, "" for the top.
std::vector<std::string> KnownKeys::children_of(const std::string& section) const {
  return (section.empty() ? tree_ : *find_path(tree_, section)).key_texts();
}

std::string KnownKeys::suggestion(const std::string& parent, const std::string& name) const {
  const auto other = elsewhere_.find(name);
  if (other != elsewhere_.end()) return fmt::format("use {}", other->second);
  const auto elsewhere =
      std::find_if(paths_.begin(), paths_.end(),
                   [&name](const std::string& path) { return path.ends_with("." + name); });
  if (elsewhere != paths_.end()) return fmt::format("did you mean '{}'?", *elsewhere);
  const std::vector<std::string> names = children_of(parent);
  return did_you_mean(name, names, fmt::format("known: {}", fmt::join(names, ", ")),
                      parent.empty() ? "" : parent + ".");
}

void KnownKeys::collect_missing(const Node& node, const std::string& path, Missing& names) const {
  const bool counts =
      !path.starts_with("hydra.") || std::find(paths_.begin(), paths_.end(), path) != paths_.end();
  if (node.is_missing() && counts) {
    if (names.keys.empty()) names.place = node.place.str();
    names.keys.push_back(path);
  }
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    collect_missing(node.items[i], fmt::format("{}[{}]", path, i), names);
  }
  for (const Entry& entry : node.entries) {
    const std::string key = python_str(entry.key);
    collect_missing(entry.value, joined_path(path, key), names);
  }
}

void KnownKeys::fail_section(const Node& value, const std::string& path) const {
  const std::string key = children_of(path).front();
  const std::size_t colon = value.text.find(':');
  if (value.place.line == 0)  // the command line
    fail_at(value.place, "{0}: is a section, not a value; set its keys, e.g. {0}.{1}=VALUE", path,
            key);
  if (value.kind == Kind::kString && colon != std::string::npos)
    fail_at(value.place, "{}: no space after the colon in '{}'; write {}: {}", path,
            shown(value.text), shown(value.text.substr(0, colon)),
            shown(value.text.substr(colon + 1)));
  fail_at(value.place,
          "{}: is a section, not a value; write its keys indented below it, e.g. {}: ...", path,
          key);
}

void KnownKeys::check_section(const Node& value, const std::string& path, bool any_keys) const {
  if (value.kind == Kind::kMap) return check(value, path, any_keys);
  const bool later = value.kind == Kind::kNull || value.is_interpolation();
  if (!later || path.starts_with("hydra")) fail_section(value, path);
}

PathKind KnownKeys::kind_of(const std::string& path) const {
  const Node* known = find_path(tree_, path);
  if (known == nullptr) return PathKind::kUnknown;
  return known->kind == Kind::kMap ? PathKind::kSection : PathKind::kKey;
}

void KnownKeys::fail_unknown(const Place& place, const std::string& parent,
                             const std::string& name) const {
  const std::string path = joined_path(parent, name);
  fail_at(place, "{}: unknown key; {}", path, suggestion(parent, name));
}

void KnownKeys::check(const Node& map, const std::string& parent, bool any_keys) const {
  for (const Entry& entry : map.entries) {
    const std::string name = python_str(entry.key);
    if (parent.empty() && name == "hydra") continue;
    const std::string path = joined_path(parent, name);
    const PathKind kind = entry.key.kind == Kind::kString ? kind_of(path) : PathKind::kUnknown;
    if (kind == PathKind::kUnknown && !any_keys) fail_unknown(entry.key.place, parent, name);
    if (name.find('.') != std::string::npos && !any_keys) {
      fail_at(
          entry.key.place,
          "{}: dotted keys are for the command line; in a file, indent the key below its section",
          path);
    }
    if (kind == PathKind::kSection) check_section(entry.value, path, any_keys);
  }
}

void KnownKeys::check_hydra(const Node& root, bool any_keys) const {
  if (const Node* hydra = root.find("hydra")) check_section(*hydra, "hydra", any_keys);
}

void KnownKeys::refuse_missing(const Node& root, const std::string& file) const {
  Missing missing;
  collect_missing(root, "", missing);
  if (missing.keys.empty()) return;
  throw UserError(
      fmt::format("{}: {}: no value given; add {}=VALUE to the command line or to the file",
                  missing.place.empty() ? file : missing.place, fmt::join(missing.keys, ", "),
                  missing.keys.front()));
}

}  // namespace ddp::train
