#include "trainer/config/keys/config_text.h"

#include <nlohmann/json.hpp>

#include "trainer/config/keys/key_table.h"
#include "trainer/hydra/yaml/node_text.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"

namespace ddp::train {
namespace {

Node config_tree(const Config& config) {
  Node root = Node::map();
  for (const Field& field : config_fields()) {
    if (belongs_to(field, config)) set_path(root, field.path, current_value(field, config));
  }
  return root;
}

[[noreturn]] void damaged(const std::string& what) {
  throw RunError("stored configuration: " + what);
}

Node node_from_json(const nlohmann::ordered_json& json) {
  if (json.is_null()) return Node::null();
  if (json.is_boolean()) return Node::of(json.get<bool>());
  if (json.is_number_float()) return Node::of(json.get<double>());
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX})
    damaged("a number is too large");
  if (json.is_number_integer()) return Node::of(json.get<int64_t>());
  if (json.is_string()) return Node::of(json.get<std::string>());
  Node node = json.is_object() ? Node::map() : Node::list();
  for (const auto& [key, item] : json.items()) {
    if (json.is_object())
      set_path(node, key, node_from_json(item));
    else
      node.items.push_back(node_from_json(item));
  }
  return node;
}

void read_object(const nlohmann::ordered_json& object, const std::string& parent, Config& config) {
  for (const auto& [name, value] : object.items()) {
    const std::string path = joined_path(parent, name);
    const Field* field = find_field(path);
    if (field == nullptr && value.is_object()) {
      read_object(value, path, config);
      continue;
    }
    if (field == nullptr)
      damaged(path + ": unknown key, written by a newer version; use that version");
    if (value.is_object()) damaged(path + ": is a section, not a value");
    const Node node = node_from_json(value);
    // A default needs no check: a value that only loading resolves (n_layer of a preset) is stored
    // as it is.
    const bool is_default = same_value(node, current_value(*field, Config{}));
    const std::string problem = is_default ? "" : assign_field(*field, node, config);
    if (!problem.empty()) damaged(path + ": " + problem);
  }
}

}  // namespace

std::string config_to_json(const Config& config) { return node_to_json(config_tree(config)); }

Config config_from_json(const std::string& json) {
  if (nests_too_deeply(json)) damaged("nested too deeply; the snapshot is damaged");
  const auto parsed = nlohmann::ordered_json::parse(json, nullptr, false);
  if (!parsed.is_object()) damaged("not a JSON object; the snapshot is damaged");
  Config config;
  read_object(parsed, "", config);
  return config;
}

std::string config_to_yaml(const Config& config) { return node_to_yaml(config_tree(config)); }

}  // namespace ddp::train
