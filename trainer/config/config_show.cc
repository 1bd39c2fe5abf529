#include "trainer/config/config_show.h"

#include <fmt/format.h>

#include "trainer/config/compose.h"
#include "trainer/config/config_fields.h"
#include "trainer/config/interpolation.h"
#include "trainer/config/message.h"
#include "trainer/config/node_text.h"
#include "trainer/config/schema.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

void collect_missing(const Node& node, const std::string& path, std::string& names) {
  if (node.is_missing()) names += (names.empty() ? "" : ", ") + path;
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    collect_missing(node.items[i], fmt::format("{}[{}]", path, i), names);
  }
  for (const Entry& entry : node.entries) {
    const std::string key = python_str(entry.key);
    collect_missing(entry.value, path.empty() ? key : path + "." + key, names);
  }
}

/// Every key of the schema: as given and typed, or its default.
Node typed_tree(const Node& given) {
  Node out = Node::map();
  for (const Field& field : config_fields()) {
    if (field.path.starts_with("hydra.")) continue;
    Config config;
    const Node* node = find_path(given, field.path);
    const bool unset = node == nullptr;
    Node value = unset ? field_value(field, config) : *node;
    if (unset && field.path == "data_config.path") value = Node::of(std::string("???"));
    if (unset && field.null_means == NullMeans::kNotGiven) value = Node::null();
    if (!unset && !node->is_interpolation() && !node->is_missing() && node->kind != Kind::kNull) {
      const std::string problem = assign_field(field, *node, config);
      if (!problem.empty()) {
        throw UserError(fmt::format("{}: {}: {}", node->place.str(), field.path, problem));
      }
      value = field_value(field, config);
    }
    set_path(out, field.path, std::move(value));
  }
  return out;
}

void erase_hydra(Node& root) {
  std::erase_if(root.entries, [](const Entry& e) { return e.key.text == "hydra"; });
}

/// The block `hydra` alone; it can be resolved as far as it has values.
Node hydra_tree(const Node& composed, bool resolve) {
  Node out = Node::map();
  Node hydra = *composed.find("hydra");
  if (resolve) {
    for (const Entry& entry : hydra.entries) (void)entry;
  }
  set_entry(out, Node::of(std::string("hydra")), std::move(hydra));
  return out;
}

Node job_tree(const Node& composed, const ShowOptions& options) {
  Node root = composed;
  erase_hydra(root);
  if (options.resolve) resolve_interpolations(root, &composed);
  if (!options.schema) return root;
  check_known(root, "");
  return typed_tree(root);
}

Node show_tree(const ConfigSource& source, const std::vector<std::string>& overrides,
               const ShowOptions& options) {
  const Node composed = compose_config(source, overrides, options.schema).root;
  const std::string& file = source.file;
  Node root = options.what == ShowWhat::kHydra ? Node::map() : job_tree(composed, options);
  if (options.what != ShowWhat::kJob) {
    Node hydra = hydra_tree(composed, options.resolve);
    root.entries.insert(root.entries.begin(), std::make_move_iterator(hydra.entries.begin()),
                        std::make_move_iterator(hydra.entries.end()));
  }
  std::string missing;
  if (options.throw_on_missing) collect_missing(root, "", missing);
  if (!missing.empty())
    throw UserError(fmt::format("{}: {}: Missing mandatory value", file, missing));
  if (options.package.empty()) return root;
  const Node* part = find_path(root, options.package);
  if (part == nullptr) {
    throw UserError(fmt::format("--package: '{}' is not in the configuration", options.package));
  }
  return *part;
}

}  // namespace

std::string show_config(const ConfigSource& source, const std::vector<std::string>& overrides,
                        const ShowOptions& options) {
  try {
    const Node root = show_tree(source, overrides, options);
    return options.format == ShowFormat::kJson ? node_to_json(root) + "\n" : node_to_yaml(root);
  } catch (const UserError& e) {
    throw UserError(one_line(e.what()));
  }
}

}  // namespace ddp::train
