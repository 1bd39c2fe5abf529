#include "trainer/hydra/compose/hydra_block.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "trainer/hydra/yaml/node_text.h"
#include "trainer/hydra/yaml/yaml_reader.h"

namespace ddp::train {
namespace {

enum class Effect { kSome, kNone };

struct HydraKey {
  std::string_view path;
  std::string_view start;  ///< As YAML.
  Effect effect = Effect::kSome;
};

constexpr auto kIdle = Effect::kNone;

constexpr HydraKey kKeys[] = {
    {"hydra.mode", "null"},
    {"hydra.searchpath", "[]"},
    {"hydra.run.dir", "."},
    {"hydra.sweep.dir", "multirun/${now:%Y-%m-%d}/${now:%H-%M-%S}"},
    {"hydra.sweep.subdir", "${hydra.job.num}"},
    {"hydra.hydra_logging", "{}", kIdle},
    {"hydra.job_logging", "{}", kIdle},
    {"hydra.sweeper._target_", "trainer", kIdle},
    {"hydra.sweeper.max_batch_size", "null", kIdle},
    {"hydra.sweeper.params", "null"},
    {"hydra.launcher._target_", "trainer", kIdle},
    {"hydra.callbacks", "{}", kIdle},
    {"hydra.env", "{}", kIdle},
    {"hydra.help.app_name", "${hydra.job.name}", kIdle},
    {"hydra.help.header", "trainer --help", kIdle},
    {"hydra.help.footer", "''", kIdle},
    {"hydra.help.template", "''", kIdle},
    {"hydra.hydra_help.hydra_help", "???", kIdle},
    {"hydra.hydra_help.template", "trainer --help", kIdle},
    {"hydra.output_subdir", ".hydra"},
    {"hydra.overrides.hydra", "[]", kIdle},
    {"hydra.overrides.task", "[]", kIdle},
    {"hydra.job.name", "???"},
    {"hydra.job.chdir", "null"},
    {"hydra.job.override_dirname", "???", kIdle},
    {"hydra.job.id", "???"},
    {"hydra.job.num", "???"},
    {"hydra.job.config_name", "???", kIdle},
    {"hydra.job.env_set", "{}", kIdle},
    {"hydra.job.env_copy", "[]", kIdle},
    {"hydra.job.config.override_dirname.kv_sep", "'='"},
    {"hydra.job.config.override_dirname.item_sep", "','"},
    {"hydra.job.config.override_dirname.exclude_keys", "[]"},
    {"hydra.runtime.version", "???", kIdle},
    {"hydra.runtime.version_base", "???", kIdle},
    {"hydra.runtime.cwd", "???", kIdle},
    {"hydra.runtime.config_sources", "???", kIdle},
    {"hydra.runtime.output_dir", "???", kIdle},
    {"hydra.runtime.choices", "{}", kIdle},
    {"hydra.verbose", "false"},
};

/// Groups and their options; the first one is the start. What they would set is in kKeys.
const std::map<std::string, std::vector<std::string>>& groups() {
  static const std::map<std::string, std::vector<std::string>> all = {
      {"output", {"default"}},
      {"launcher", {"basic"}},
      {"sweeper", {"basic"}},
      {"help", {"default"}},
      {"hydra_help", {"default"}},
      {"env", {"default"}},
      {"hydra_logging", {"default", "disabled", "hydra_debug", "none"}},
      {"job_logging", {"default", "disabled", "none", "stdout"}}};
  return all;
}

std::string start_text() {
  Node tree = Node::map();
  for (const HydraKey& key : kKeys)
    set_path(tree, std::string(key.path), read_yaml(std::string(key.start), "hydra/config"));
  std::string defaults;
  for (const auto& [group, options] : groups())
    defaults += fmt::format("- {}: {}\n", group, options.front());
  return "defaults:\n" + defaults + "- callbacks: null\n" + node_to_yaml(*tree.find("hydra"));
}

bool is_own(const Place& place) { return place.str().empty() || place.str().starts_with("hydra/"); }

/// An empty list or map is what it starts as.
bool has_given_part(const Node& node) {
  if (!node.is_container()) return !is_own(node.place);
  const auto given = [](const Entry& entry) { return has_given_part(entry.value); };
  return std::any_of(node.items.begin(), node.items.end(), has_given_part) ||
         std::any_of(node.entries.begin(), node.entries.end(), given);
}

}  // namespace

std::vector<std::string> hydra_paths() {
  std::vector<std::string> paths;
  for (const HydraKey& key : kKeys) paths.emplace_back(key.path);
  return paths;
}

const std::string* hydra_config_text(const std::string& path) {
  static const std::string start = start_text();
  static const std::string nothing = "# @package hydra\n";
  if (path == "hydra/config") return &start;
  const std::size_t slash = path.rfind('/');
  const auto options = hydra_options(path.substr(0, slash));
  const bool known =
      std::find(options.begin(), options.end(), path.substr(slash + 1)) != options.end();
  return known ? &nothing : nullptr;
}

bool hydra_has_group(const std::string& group) {
  return group == "hydra" || (group.starts_with("hydra/") && groups().contains(group.substr(6)));
}

std::vector<std::string> hydra_options(const std::string& group) {
  if (group == "hydra") return {"config"};
  return hydra_has_group(group) ? groups().at(group.substr(6)) : std::vector<std::string>();
}

std::vector<std::string> hydra_without_effect(
    const Node& root, const std::vector<std::pair<std::string, std::string>>& choices) {
  std::vector<std::string> names;
  for (const HydraKey& key : kKeys) {
    const Node* node = find_path(root, std::string(key.path));
    if (key.effect == kIdle && node != nullptr && has_given_part(*node))
      names.emplace_back(key.path);
  }
  for (const auto& [group, option] : choices) {
    const bool own = hydra_has_group(group);
    if (own && option != hydra_options(group).front()) names.push_back(group + "=" + option);
  }
  return names;
}

}  // namespace ddp::train
