#include "trainer/config/yaml_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "trainer/config/compose.h"
#include "trainer/config/config_checks.h"
#include "trainer/config/config_fields.h"
#include "trainer/config/interpolation.h"
#include "trainer/config/overrides.h"
#include "trainer/config/suggest.h"
#include "trainer/config/yaml_reader.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

std::string read_text(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  if (stream) text << stream.rdbuf();
  // A directory opens and then fails to read.
  if (!stream || (text.str().empty() && stream.bad())) {
    throw UserError(fmt::format("{}: cannot read the config file: {}; give a YAML file with --config", file,
                                std::strerror(errno)));
  }
  return text.str();
}

/// The schema's view of a path: a key, a section on the way to keys, or unknown.
enum class PathKind { kKey, kSection, kUnknown };

std::vector<std::string> all_paths() {
  std::vector<std::string> paths;
  for (const Field& field : config_fields()) paths.push_back(field.path);
  paths.insert(paths.end(), ignored_hydra_keys().begin(), ignored_hydra_keys().end());
  return paths;
}

PathKind path_kind(const std::string& path) {
  for (const std::string& known : all_paths()) {
    if (known == path) return PathKind::kKey;
    if (known.starts_with(path + ".")) return PathKind::kSection;
  }
  return PathKind::kUnknown;
}

/// What may stand directly under `parent` ("" for the top).
std::vector<std::string> children_of(const std::string& parent) {
  const std::string prefix = parent.empty() ? "" : parent + ".";
  std::vector<std::string> names;
  for (const std::string& path : all_paths()) {
    if (!path.starts_with(prefix)) continue;
    std::string name = path.substr(prefix.size());
    name = name.substr(0, name.find('.'));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

std::string suggestion(const std::string& parent, const std::string& name) {
  const std::string prefix = parent.empty() ? "" : parent + ".";
  const std::string near = nearest(name, children_of(parent));
  if (!near.empty()) return fmt::format("did you mean '{}{}'?", prefix, near);
  for (const std::string& path : all_paths()) {
    if (path.ends_with("." + name)) return fmt::format("did you mean '{}'?", path);
  }
  std::string known;
  for (const std::string& child : children_of(parent)) known += (known.empty() ? "" : ", ") + child;
  return fmt::format("known are {}", known);
}

[[noreturn]] void fail_unknown(const Place& place, const std::string& parent, const std::string& name) {
  const std::string path = parent.empty() ? name : parent + "." + name;
  throw UserError(fmt::format("{}: {}: unknown key (Key '{}' is not in struct); {}", place.str(), path, name,
                              suggestion(parent, name)));
}

void check_known(const Node& map, const std::string& parent) {
  for (const Entry& entry : map.entries) {
    const std::string name = python_str(entry.key);
    const std::string path = parent.empty() ? name : parent + "." + name;
    const PathKind kind = entry.key.kind == Kind::kString ? path_kind(path) : PathKind::kUnknown;
    if (kind == PathKind::kUnknown) fail_unknown(entry.key.place, parent, name);
    if (kind == PathKind::kKey) continue;
    const Node& value = entry.value;
    if (value.kind == Kind::kMap) {
      check_known(value, path);
    } else if (value.kind != Kind::kNull && !value.is_interpolation()) {
      throw UserError(fmt::format("{}: {}: is a section, not a value; write its keys indented below it, e.g. {}",
                                  value.place.str(), path, children_of(path).front()));
    }
  }
}

/// Every leaf of the tree by its full path.
void collect_leaves(const Node& map, const std::string& parent, std::map<std::string, const Node*>& leaves) {
  for (const Entry& entry : map.entries) {
    const std::string path = (parent.empty() ? "" : parent + ".") + python_str(entry.key);
    if (path_kind(path) == PathKind::kSection) {
      collect_leaves(entry.value, path, leaves);
    } else {
      leaves[path] = &entry.value;
    }
  }
}

using Leaves = std::map<std::string, const Node*>;

void check_missing(const Leaves& leaves, const std::string& file) {
  std::vector<std::string> missing;
  std::string where = file;
  for (const auto& [path, node] : leaves) {
    if (!node->is_missing()) continue;
    if (missing.empty()) where = node->place.str();
    missing.push_back(path);
  }
  if (!leaves.contains("data_config.path")) missing.emplace_back("data_config.path");
  if (missing.empty()) return;
  std::string names;
  for (const std::string& name : missing) names += (names.empty() ? "" : ", ") + name;
  throw UserError(fmt::format("{}: {}: Missing mandatory value{}; add {}=<value> to the command line or to the file",
                              where, names, missing.size() == 1 ? "" : "s", missing.front()));
}

Config to_config(const Leaves& leaves) {
  Config config;
  for (const auto& [path, node] : leaves) {
    const Field* field = find_field(path);
    if (field == nullptr) continue;  // one of Hydra's keys that have no effect
    const std::string problem = assign_field(*field, *node, config);
    if (!problem.empty()) throw UserError(fmt::format("{}: {}: {}", node->place.str(), path, problem));
  }
  return config;
}

Given given_from(const Leaves& leaves, const std::string& file) {
  return Given{[&leaves](const std::string& key) {
                 const auto found = leaves.find(key);
                 return found != leaves.end() && found->second->kind != Kind::kNull;
               },
               [&leaves, file](const std::string& key) {
                 const auto found = leaves.find(key);
                 return (found == leaves.end() ? file : found->second->place.str()) + ": " + key;
               }};
}

void apply_overrides(Node& root, const std::vector<std::string>& overrides) {
  for (const std::string& text : overrides) {
    const Override change = parse_override(text);
    const auto parts = split_path(change.key);
    std::string parent;
    for (const std::string& part : parts) {
      const std::string path = parent.empty() ? part : parent + "." + part;
      if (path_kind(path) == PathKind::kUnknown && path_kind(parent) != PathKind::kKey) {
        fail_unknown(change.value.place, parent, part);
      }
      parent = path;
    }
    apply_override(root, change, true);
  }
}

}  // namespace

Config load_config(const std::string& file, const std::vector<std::string>& overrides) {
  Node root = read_yaml(read_text(file), file);
  if (root.kind == Kind::kNull) root = Node::map();
  if (root.kind != Kind::kMap) {
    throw UserError(fmt::format("{}: not a configuration: sections such as data_config: are expected at the top", file));
  }
  check_known(root, "");
  apply_overrides(root, overrides);
  check_known(root, "");
  resolve_interpolations(root);
  check_known(root, "");
  Leaves leaves;
  collect_leaves(root, "", leaves);
  check_missing(leaves, file);
  Config config = to_config(leaves);
  const Given given = given_from(leaves, file);
  complete_config(config, given);
  resolve_paths(config, given);
  return config;
}

}  // namespace ddp::train
