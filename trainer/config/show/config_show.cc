#include "trainer/config/show/config_show.h"

#include <fmt/format.h>

#include <algorithm>

#include "trainer/config/keys/key_table.h"
#include "trainer/config/keys/trainer_keys.h"
#include "trainer/hydra/compose/compose.h"
#include "trainer/hydra/compose/sweep_plan.h"
#include "trainer/hydra/interpolation/interpolation.h"
#include "trainer/hydra/yaml/node_text.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

/// A key, its value as JSON, and the place the value comes from.
struct Origin {
  std::string path;
  std::string value;
  std::string place;
};

/// As given and typed, or the default.
Node shown_value(const Field& field, const Node* given) {
  if (given != nullptr && (given->is_interpolation() || given->is_missing())) return *given;
  const bool null = given == nullptr || given->kind == Kind::kNull;
  if (null && field.null_means == NullMeans::kNotGiven) return Node::null();
  Config config;
  const std::string problem = given == nullptr ? "" : assign_field(field, *given, config);
  if (!problem.empty()) fail_at(given->place, "{}: {}", field.path, problem);
  return current_value(field, config);
}

/// Whether the key's default follows from other keys, a preset or a pretrained model, which is not
/// read here.
bool follows_from_others(const Field& field, const Node& given) {
  const auto is_set = [&](const std::string& key) {
    const Node* value = find_path(given, key);
    return value != nullptr && value->kind != Kind::kNull;
  };
  const std::string section = field.path.substr(0, field.path.find('.'));
  const bool of_model =
      section == "task" || section == "model" || find_field(section + ".init_from") != nullptr;
  if (find_field(section + ".family") != nullptr) return true;
  if (!field.default_text.empty() && field.null_means == NullMeans::kError) return true;
  return of_model &&
         (is_set("init_from") || is_set(section + ".init_from") || is_set(section + ".model_type"));
}

/// Every key of the schema, as far as its value is known.
Node typed_tree(const Node& given) {
  Node out = Node::map();
  const Node missing = Node::of(std::string("???"));
  const bool needs_path = find_path(given, "data_config.sources") == nullptr;
  for (const Field& field : config_fields()) {
    const Node* value = find_path(given, field.path);
    if (needs_path && value == nullptr && field.path == "data_config.path") value = &missing;
    if (field.path.starts_with("hydra.")) continue;
    if (value == nullptr && follows_from_others(field, given)) continue;
    set_path(out, field.path, shown_value(field, value));
  }
  return out;
}

Node job_tree(const Node& composed, const ConfigSource& source, const ShowOptions& options) {
  Node root = without_key(composed, "hydra");
  if (options.resolve) resolve_interpolations(root, &composed);
  if (source.any_keys) return root;
  trainer_keys().check(root, "");
  return typed_tree(root);
}

/// `--package a.b[0]`; "" and _global_ are everything.
Node package_of(Node root, const std::string& package) {
  if (package.empty() || package == "_global_") return root;
  std::string dotted = package;
  std::replace(dotted.begin(), dotted.end(), '[', '.');
  std::erase(dotted, ']');
  Node* part = &root;
  for (const std::string& name : split_path(dotted)) {
    Node* next = part->child(name);
    if (next == nullptr) {
      const auto known = part->key_texts();
      const auto fix = fmt::format("known: {}", fmt::join(known, ", "));
      throw UserError(fmt::format("--package: '{}' is not in the configuration; {}", package,
                                  did_you_mean(name, known, fix)));
    }
    part = next;
  }
  return *part;
}

Node show_tree(const ConfigSource& source, const std::vector<std::string>& overrides,
               const ShowOptions& options) {
  const Node composed = compose_config(source, overrides, trainer_keys()).root;
  // Much of the block hydra has its values only in a run: it is shown as it is written.
  Node root = options.what == ShowWhat::kHydra ? Node::map() : job_tree(composed, source, options);
  if (options.what != ShowWhat::kJob) {
    Node hydra = only_key(composed, "hydra");
    root.entries.insert(root.entries.begin(), std::make_move_iterator(hydra.entries.begin()),
                        std::make_move_iterator(hydra.entries.end()));
  }
  if (options.throw_on_missing) trainer_keys().refuse_missing(root, source.file);
  return package_of(root, options.package);
}

void collect_origins(const Node& node, const std::string& path, std::vector<Origin>& out) {
  if (node.kind == Kind::kMap && !node.entries.empty()) {
    for (const Entry& entry : node.entries) {
      const std::string key = python_str(entry.key);
      collect_origins(entry.value, joined_path(path, key), out);
    }
    return;
  }
  out.push_back({path, node_to_json(node), node.place.str()});
}

/// What was given, then the keys that have their defaults.
std::vector<Origin> origins(const Node& composed) {
  const Node job = without_key(composed, "hydra");
  trainer_keys().check(job, "");
  std::vector<Origin> out;
  collect_origins(job, "", out);
  for (const Field& field : config_fields()) {
    const Node* given = find_path(composed, field.path);
    const bool hydra = field.path.starts_with("hydra.");
    if (given == nullptr) {
      out.push_back({field.path, field_default(field), "default"});
    } else if (hydra) {
      const bool own = given->place.str().starts_with("hydra/") || given->place.str().empty();
      out.push_back({field.path, node_to_json(*given), own ? "default" : given->place.str()});
    }
  }
  return out;
}

std::string origins_text(const Composed& composed) {
  std::string text = "Files, in the order of merging (a later one wins)\n";
  for (const MergedConfig& config : composed.configs) {
    text += "  " + config.file;
    text += config.package.empty() ? "\n" : fmt::format("  at {}\n", config.package);
  }
  for (const auto& [group, option] : composed.choices) {
    if (!group.starts_with("hydra/")) text += fmt::format("  group {} = {}\n", group, option);
  }
  const std::vector<Origin> all = origins(composed.root);
  std::size_t width = 0;
  std::size_t value_width = 0;
  for (const Origin& origin : all) {
    width = std::max(width, origin.path.size());
    if (origin.value.size() <= 40) value_width = std::max(value_width, origin.value.size());
  }
  text += "\nValues, and where each comes from\n";
  for (const Origin& origin : all)
    text += fmt::format("  {:<{}}  {:<{}}  {}\n", origin.path, width, origin.value, value_width,
                        origin.place);
  return text;
}

}  // namespace

std::string show_sweep(const ConfigSource& source, const std::vector<std::string>& overrides,
                       const ShowOptions& options) {
  std::string text;
  for (const auto& job : plan_sweep(source, overrides, trainer_keys()).jobs) {
    if (!text.empty() && options.format == ShowFormat::kYaml) text += "---\n";
    text += show_config(source, job, options);
  }
  return text;
}

std::string show_origins(const ConfigSource& source, const std::vector<std::string>& overrides) {
  return origins_text(compose_config(source, overrides, trainer_keys()));
}

std::string show_config(const ConfigSource& source, const std::vector<std::string>& overrides,
                        const ShowOptions& options) {
  const Node root = show_tree(source, overrides, options);
  return options.format == ShowFormat::kJson ? node_to_json(root) + "\n" : node_to_yaml(root);
}

}  // namespace ddp::train
