#include "trainer/config/yaml_config.h"

#include <fmt/format.h>

#include <map>

#include "trainer/config/compose.h"
#include "trainer/config/config_checks.h"
#include "trainer/config/config_fields.h"
#include "trainer/config/interpolation.h"
#include "trainer/config/message.h"
#include "trainer/config/node_text.h"
#include "trainer/config/schema.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

using Leaves = std::map<std::string, Node>;

/// The given value of every field by its path.
Leaves collect_leaves(const Node& root) {
  Leaves leaves;
  for (const Field& field : config_fields()) {
    const Node* node = find_path(root, field.path);
    if (node == nullptr) continue;
    leaves[field.path] = *node;
    if (!field.path.starts_with("hydra.") || !node->is_interpolation()) continue;
    Node& value = leaves[field.path] = select_value(root, field.path);
    value.place = node->place;
  }
  return leaves;
}

void check_missing(const Leaves& leaves, const std::string& file) {
  std::vector<std::string> missing;
  std::string where = file;
  for (const auto& [path, node] : leaves) {
    if (!node.is_missing()) continue;
    if (missing.empty()) where = node.place.str();
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
    const std::string problem = assign_field(*find_field(path), node, config);
    if (!problem.empty())
      throw UserError(fmt::format("{}: {}: {}", node.place.str(), path, problem));
  }
  return config;
}

Given given_from(const Leaves& leaves, const std::string& file) {
  return Given{[&leaves](const std::string& key) {
                 const auto found = leaves.find(key);
                 return found != leaves.end() && found->second.kind != Kind::kNull;
               },
               [&leaves, file](const std::string& key) {
                 const auto found = leaves.find(key);
                 return (found == leaves.end() ? file : found->second.place.str()) + ": " + key;
               }};
}

Config load(const ConfigSource& source, const std::vector<std::string>& overrides) {
  const std::string& file = source.file;
  Node root = compose_config(source, overrides, true).root;
  check_known(root, "");
  resolve_interpolations(root, &root);
  check_known(root, "");
  const Leaves leaves = collect_leaves(root);
  check_missing(leaves, file);
  Config config = to_config(leaves);
  const Given given = given_from(leaves, file);
  complete_config(config, given);
  resolve_paths(config, given);
  return config;
}

}  // namespace

Config load_config(const ConfigSource& source, const std::vector<std::string>& overrides) {
  try {
    return load(source, overrides);
  } catch (const UserError& e) {
    throw UserError(one_line(e.what()));
  }
}

}  // namespace ddp::train
