#include "trainer/config/compose/hydra_block.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "trainer/config/yaml/node_text.h"
#include "trainer/config/yaml/yaml_reader.h"
#include "trainer/runtime/message.h"

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
    {"mode", "null"},
    {"searchpath", "[]"},
    {"run.dir", "."},
    {"sweep.dir", "multirun/${now:%Y-%m-%d}/${now:%H-%M-%S}"},
    {"sweep.subdir", "${hydra.job.num}"},
    {"hydra_logging", "{}", kIdle},
    {"job_logging", "{}", kIdle},
    {"sweeper._target_", "trainer", kIdle},
    {"sweeper.max_batch_size", "null", kIdle},
    {"sweeper.params", "null"},
    {"launcher._target_", "trainer", kIdle},
    {"callbacks", "{}", kIdle},
    {"env", "{}", kIdle},
    {"help.app_name", "${hydra.job.name}", kIdle},
    {"help.header", "trainer --help", kIdle},
    {"help.footer", "''", kIdle},
    {"help.template", "''", kIdle},
    {"hydra_help.hydra_help", "???", kIdle},
    {"hydra_help.template", "trainer --help", kIdle},
    {"output_subdir", ".hydra"},
    {"overrides.hydra", "[]"},
    {"overrides.task", "[]"},
    {"job.name", "???"},
    {"job.chdir", "null"},
    {"job.override_dirname", "???"},
    {"job.id", "???"},
    {"job.num", "???"},
    {"job.config_name", "???"},
    {"job.env_set", "{}", kIdle},
    {"job.env_copy", "[]", kIdle},
    {"job.config.override_dirname.kv_sep", "'='"},
    {"job.config.override_dirname.item_sep", "','"},
    {"job.config.override_dirname.exclude_keys", "[]"},
    {"runtime.version", "???"},
    {"runtime.version_base", "???"},
    {"runtime.cwd", "???"},
    {"runtime.config_sources", "???"},
    {"runtime.output_dir", "???"},
    {"runtime.choices", "{}"},
    {"verbose", "false"},
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
  return "defaults:\n" + defaults + "- callbacks: null\n" + node_to_yaml(tree);
}

/// "a.b" lies under "a".
bool lies_under(std::string_view path, std::string_view parent) {
  return parent.empty() ||
         (path.size() > parent.size() && path[parent.size()] == '.' && path.starts_with(parent));
}

bool is_section(std::string_view path) {
  return std::any_of(std::begin(kKeys), std::end(kKeys),
                     [path](const HydraKey& key) { return lies_under(key.path, path); });
}

bool is_key(std::string_view path) {
  return std::any_of(std::begin(kKeys), std::end(kKeys),
                     [path](const HydraKey& key) { return key.path == path; });
}

std::vector<std::string> names_under(std::string_view parent) {
  std::vector<std::string> names;
  for (const HydraKey& key : kKeys) {
    if (!lies_under(key.path, parent)) continue;
    const auto rest = key.path.substr(parent.empty() ? 0 : parent.size() + 1);
    const std::string name(rest.substr(0, rest.find('.')));
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  return names;
}

[[noreturn]] void fail_unknown(const Node& key, const std::string& parent) {
  const std::string name = python_str(key);
  const std::string full = parent.empty() ? "hydra" : "hydra." + parent;
  const auto names = names_under(parent);
  const std::string near = nearest(name, names);
  fail_at(key.place, "{}.{}: unknown key; {}", full, name,
          near.empty() ? fmt::format("known: {}", fmt::join(names, ", "))
                       : fmt::format("did you mean '{}.{}'?", full, near));
}

void check_section(const Node& section, const std::string& path, bool any_keys) {
  if (section.kind != Kind::kMap) {
    fail_at(section.place, "hydra{}{}: is a section, not a value; set its keys",
            path.empty() ? "" : ".", path);
  }
  for (const Entry& entry : section.entries) {
    const std::string name = python_str(entry.key);
    const std::string inner = joined_path(path, name);
    const bool dotted = name.find('.') != std::string::npos;  // such as on the command line
    if (!dotted && is_section(inner)) {
      check_section(entry.value, inner, any_keys);
    } else if (!any_keys && (dotted || !is_key(inner))) {
      fail_unknown(entry.key, path);
    }
  }
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

const std::string* hydra_config_text(const std::string& path) {
  static const std::string start = start_text();
  static const std::string nothing = "# @package hydra\n";
  if (path == "hydra/config") return &start;
  for (const auto& [group, options] : groups()) {
    for (const std::string& option : options) {
      if (path == "hydra/" + group + "/" + option) return &nothing;
    }
  }
  return nullptr;
}

bool hydra_has_group(const std::string& group) {
  return group == "hydra" || (group.starts_with("hydra/") && groups().contains(group.substr(6)));
}

std::vector<std::string> hydra_options(const std::string& group) {
  if (group == "hydra") return {"config"};
  return hydra_has_group(group) ? groups().at(group.substr(6)) : std::vector<std::string>();
}

void check_hydra_keys(const Node& hydra, bool any_keys) { check_section(hydra, "", any_keys); }

bool is_hydra_field(const std::string& path) {
  if (path == "hydra") return true;
  const std::string own = path.starts_with("hydra.") ? path.substr(6) : "";
  return !own.empty() && (is_section(own) || is_key(own));
}

std::vector<std::string> hydra_without_effect(
    const Node& hydra, const std::vector<std::pair<std::string, std::string>>& choices) {
  std::vector<std::string> names;
  for (const HydraKey& key : kKeys) {
    const Node* node = find_path(hydra, std::string(key.path));
    if (key.effect == kIdle && node != nullptr && has_given_part(*node))
      names.push_back("hydra." + std::string(key.path));
  }
  for (const auto& [group, option] : choices) {
    const bool own = hydra_has_group(group);
    if (own && option != hydra_options(group).front()) names.push_back(group + "=" + option);
  }
  return names;
}

}  // namespace ddp::train
