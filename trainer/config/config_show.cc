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

Node show_tree(const std::string& file, const std::vector<std::string>& overrides,
               const ShowOptions& options) {
  Node root = compose_config(file, overrides, options.schema);
  if (options.what == ShowWhat::kJob) {
    std::erase_if(root.entries, [](const Entry& e) { return e.key.text == "hydra"; });
  }
  if (options.resolve) resolve_interpolations(root, hydra_values());
  if (options.schema) {
    check_known(root, "");
    root = typed_tree(root);
    if (options.what == ShowWhat::kJob) {
      std::erase_if(root.entries, [](const Entry& e) { return e.key.text == "hydra"; });
    }
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

std::string show_config(const std::string& file, const std::vector<std::string>& overrides,
                        const ShowOptions& options) {
  try {
    const Node root = show_tree(file, overrides, options);
    return options.format == ShowFormat::kJson ? node_to_json(root) + "\n" : node_to_yaml(root);
  } catch (const UserError& e) {
    throw UserError(one_line(e.what()));
  }
}

}  // namespace ddp::train
