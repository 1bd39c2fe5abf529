#include "trainer/config/yaml_config.h"

#include <fmt/format.h>

#include <map>

#include "trainer/config/compose.h"
#include "trainer/config/config_checks.h"
#include "trainer/config/config_fields.h"
#include "trainer/config/interpolation.h"
#include "trainer/config/message.h"
#include "trainer/config/schema.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

/// Every leaf of the tree by its full path.
void collect_leaves(const Node& map, const std::string& parent,
                    std::map<std::string, const Node*>& leaves) {
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
  throw UserError(fmt::format(
      "{}: {}: Missing mandatory value{}; add {}=<value> to the command line or to the file", where,
      names, missing.size() == 1 ? "" : "s", missing.front()));
}

Config to_config(const Leaves& leaves) {
  Config config;
  for (const auto& [path, node] : leaves) {
    const Field* field = find_field(path);
    if (field == nullptr) continue;  // one of Hydra's keys that have no effect
    const std::string problem = assign_field(*field, *node, config);
    if (!problem.empty())
      throw UserError(fmt::format("{}: {}: {}", node->place.str(), path, problem));
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

Config load(const std::string& file, const std::vector<std::string>& overrides) {
  Node root = compose_config(file, overrides, true);
  check_known(root, "");
  resolve_interpolations(root, hydra_values());
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

}  // namespace

Config load_config(const std::string& file, const std::vector<std::string>& overrides) {
  try {
    return load(file, overrides);
  } catch (const UserError& e) {
    throw UserError(one_line(e.what()));
  }
}

}  // namespace ddp::train
