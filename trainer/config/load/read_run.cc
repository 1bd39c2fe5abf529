#include "trainer/config/load/read_run.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "trainer/config/keys/key_table.h"
#include "trainer/config/keys/trainer_keys.h"
#include "trainer/hydra/compose/compose.h"
#include "trainer/hydra/compose/folders.h"
#include "trainer/hydra/interpolation/interpolation.h"
#include "trainer/hydra/yaml/node_text.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/log/message.h"

namespace ddp::train {
namespace {

Given collect_given(const Node& root, const std::string& file) {
  std::map<std::string, Node> values;
  for (const Field& field : config_fields()) {
    const Node* node = find_path(root, field.path);
    if (node == nullptr) continue;
    values[field.path] = *node;
    if (!field.path.starts_with("hydra.") || !node->is_interpolation()) continue;
    Node& value = values[field.path] = select_value(root, field.path);
    value.place = node->place;
  }
  return {std::move(values), file};
}

Config to_config(const Given& given) {
  Config config;
  for (const auto& [path, node] : given.values()) {
    const std::string problem = assign_field(*find_field(path), node, config);
    if (!problem.empty()) fail_at(node.place, "{}: {}", path, problem);
  }
  return config;
}

std::string text_of(const Node& root, const std::string& path) {
  const Node value = select_value(root, path);
  if (value.kind == Kind::kString || value.kind == Kind::kInt) return python_str(value);
  throw UserError(
      fmt::format("{}: '{}' ({}) is not a string; give a "
                  "folder",
                  path, shown(python_str(value)), python_type(value)));
}

/// Where this run writes; a job of a sweep has a folder of its own.
void place_run(Node& root, std::optional<int64_t> sweep_job) {
  if (sweep_job) {
    set_path(root, "hydra.job.num", Node::of(*sweep_job));
    set_path(root, "hydra.job.id", Node::of(std::to_string(*sweep_job)));
    set_path(root, "hydra.mode", Node::of(std::string("MULTIRUN")));
    const std::string folder =
        text_of(root, "hydra.sweep.dir") + "/" + text_of(root, "hydra.sweep.subdir");
    set_path(root, "hydra.run.dir", Node::of(folder));
  }
  const Node folder = select_value(root, "hydra.run.dir");
  if (folder.kind == Kind::kString)
    set_path(root, "hydra.runtime.output_dir", Node::of(absolute_path(folder.text)));
}

RunFiles run_files(const Node& composed) {
  return {node_to_yaml(without_key(composed, "hydra")), node_to_yaml(only_key(composed, "hydra")),
          node_to_yaml(*find_path(composed, "hydra.overrides.task"))};
}

std::string warning_of(const std::vector<std::string>& ignored) {
  if (ignored.empty()) return "";
  return fmt::format("{}: ignored, not used by trainer", fmt::join(ignored, ", "));
}

}  // namespace

RunConfig read_run(const ConfigSource& source, const std::vector<std::string>& overrides,
                   std::optional<int64_t> sweep_job, DataFiles data, DeriveValues derive) {
  const std::string& file = source.file;
  const Composed composed = compose_config(source, overrides, trainer_keys());
  Node root = composed.root;
  trainer_keys().check(root, "");
  place_run(root, sweep_job);
  RunFiles files = run_files(root);
  resolve_interpolations(root, &root);
  trainer_keys().check(root, "");
  if (find_path(root, "data_config.path") == nullptr &&
      find_path(root, "data_config.sources") == nullptr)
    set_path(root, "data_config.path", Node::of(std::string("???")));
  trainer_keys().refuse_missing(root, file);
  const Given given = collect_given(root, file);
  Config config = to_config(given);
  derive(config, given);
  complete_config(config, given);
  resolve_paths(config, given, sweep_job.has_value(), data);
  return {std::move(config), std::move(files), given, warning_of(composed.ignored)};
}

void write_run_folder(const RunConfig& run) {
  const HydraConfig& hydra = run.config.hydra;
  if (hydra.output_subdir.empty()) return;
  const std::string folder = hydra.run_dir + "/" + hydra.output_subdir;
  publish_text(folder, "config.yaml", run.files.config, "hydra.run.dir");
  publish_text(folder, "hydra.yaml", run.files.hydra, "hydra.run.dir");
  publish_text(folder, "overrides.yaml", run.files.overrides, "hydra.run.dir");
}

}  // namespace ddp::train
