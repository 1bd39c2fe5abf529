#include "trainer/config/hydra_block.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "trainer/config/message.h"
#include "trainer/config/node_text.h"
#include "trainer/config/python_number.h"
#include "trainer/config/suggest.h"
#include "trainer/config/yaml_reader.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

enum class Type { kText, kBool, kInt, kTexts, kTextMap, kMap, kMode, kAny };
enum class Null { kRefused, kAllowed };
enum class Effect { kSome, kNone };
using enum Type;

struct HydraKey {
  std::string_view path;
  Type type;
  Null null;
  std::string_view start;  ///< As YAML.
  Effect effect = Effect::kSome;
};

constexpr auto kNull = Null::kAllowed;
constexpr auto kValue = Null::kRefused;
constexpr auto kIdle = Effect::kNone;

constexpr HydraKey kKeys[] = {
    {"mode", kMode, kNull, "null"},
    {"searchpath", kTexts, kValue, "[]"},
    {"run.dir", kText, kValue, "."},
    {"sweep.dir", kText, kValue, "multirun/${now:%Y-%m-%d}/${now:%H-%M-%S}"},
    {"sweep.subdir", kText, kValue, "${hydra.job.num}"},
    {"hydra_logging", kMap, kValue, "{}", kIdle},
    {"job_logging", kMap, kValue, "{}", kIdle},
    {"sweeper._target_", kText, kValue, "trainer", kIdle},
    {"sweeper.max_batch_size", kInt, kNull, "null", kIdle},
    {"sweeper.params", kTextMap, kNull, "null"},
    {"launcher._target_", kText, kValue, "trainer", kIdle},
    {"callbacks", kMap, kValue, "{}", kIdle},
    {"env", kAny, kNull, "{}", kIdle},
    {"help.app_name", kText, kValue, "${hydra.job.name}", kIdle},
    {"help.header", kText, kValue, "trainer --help", kIdle},
    {"help.footer", kText, kValue, "''", kIdle},
    {"help.template", kText, kValue, "''", kIdle},
    {"hydra_help.hydra_help", kText, kValue, "???", kIdle},
    {"hydra_help.template", kText, kValue, "trainer --help", kIdle},
    {"output_subdir", kText, kNull, ".hydra"},
    {"overrides.hydra", kTexts, kValue, "[]"},
    {"overrides.task", kTexts, kValue, "[]"},
    {"job.name", kText, kValue, "???"},
    {"job.chdir", kBool, kNull, "null"},
    {"job.override_dirname", kText, kValue, "???"},
    {"job.id", kText, kValue, "???"},
    {"job.num", kInt, kValue, "???"},
    {"job.config_name", kText, kNull, "???"},
    {"job.env_set", kTextMap, kValue, "{}", kIdle},
    {"job.env_copy", kTexts, kValue, "[]", kIdle},
    {"job.config.override_dirname.kv_sep", kText, kValue, "'='"},
    {"job.config.override_dirname.item_sep", kText, kValue, "','"},
    {"job.config.override_dirname.exclude_keys", kTexts, kValue, "[]"},
    {"runtime.version", kText, kValue, "???"},
    {"runtime.version_base", kText, kValue, "???"},
    {"runtime.cwd", kText, kValue, "???"},
    {"runtime.config_sources", kAny, kNull, "???"},
    {"runtime.output_dir", kText, kValue, "???"},
    {"runtime.choices", kMap, kValue, "{}"},
    {"verbose", kAny, kNull, "false"},
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
  return parent.empty() || (path.size() > parent.size() && path[parent.size()] == '.' &&
                            path.starts_with(parent));
}

bool is_section(std::string_view path) {
  return std::any_of(std::begin(kKeys), std::end(kKeys),
                     [path](const HydraKey& key) { return lies_under(key.path, path); });
}

const HydraKey* find_key(std::string_view path) {
  const auto* const key = std::find_if(std::begin(kKeys), std::end(kKeys),
                                       [path](const HydraKey& k) { return k.path == path; });
  return key == std::end(kKeys) ? nullptr : key;
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
  throw UserError(fmt::format("{}: {}.{}: unknown key (Key '{}' is not in struct); {}",
                              key.place.str(), full, name, name,
                              near.empty() ? fmt::format("known are {}", fmt::join(names, ", "))
                                           : fmt::format("did you mean '{}.{}'?", full, near)));
}

void check_section(const Node& section, const std::string& path) {
  if (section.kind != Kind::kMap) {
    throw UserError(fmt::format("{}: hydra{}{}: is a block of Hydra's settings, not a value",
                                section.place.str(), path.empty() ? "" : ".", path));
  }
  for (const Entry& entry : section.entries) {
    const std::string name = python_str(entry.key);
    const std::string inner = path.empty() ? name : path + "." + name;
    if (is_section(inner)) {
      check_section(entry.value, inner);
    } else if (find_key(inner) == nullptr) {
      fail_unknown(entry.key, path);
    }
  }
}

std::string_view wanted(Type type) {
  switch (type) {
    case kText:
      return "a text";
    case kBool:
      return "true or false";
    case kInt:
      return "an integer";
    case kTexts:
      return "a list of texts";
    case kMode:
      return "RUN or MULTIRUN";
    default:
      return "a map";
  }
}

/// The place of a value stays when its type changes.
bool replace(Node& node, Node typed) {
  typed.place = node.place;
  node = std::move(typed);
  return true;
}

bool to_text(Node& node) {
  if (node.is_container() || node.kind == Kind::kNull) return false;
  return replace(node, Node::of(python_str(node)));
}

bool to_int(Node& node) {
  if (node.kind == Kind::kInt) return true;
  const auto parsed = node.kind == Kind::kString ? python_int(node.text) : std::nullopt;
  return parsed && replace(node, Node::of(*parsed));
}

bool to_bool(Node& node) {
  const auto parsed = lenient_bool(node);
  return parsed && replace(node, Node::of(*parsed));
}

bool is_mode(const Node& node) {
  constexpr std::array<std::string_view, 4> kModes = {"RUN", "MULTIRUN", "RunMode.RUN",
                                                      "RunMode.MULTIRUN"};
  if (node.kind == Kind::kInt) return node.integer == 1 || node.integer == 2;
  return node.kind == Kind::kString &&
         std::find(kModes.begin(), kModes.end(), node.text) != kModes.end();
}

/// A value that is missing, or known only when it is asked for, fits any type.
bool is_open(const Node& node) { return node.is_missing() || node.is_interpolation(); }

/// OmegaConf does not look into the containers of a list or a map of texts.
bool fits_text(Node& node) { return is_open(node) || node.is_container() || to_text(node); }

bool convert(Node& node, const HydraKey& key) {
  if (is_open(node) || (node.kind == Kind::kNull && key.null == kNull)) return true;
  switch (key.type) {
    case kText:
      return to_text(node);
    case kBool:
      return to_bool(node);
    case kInt:
      return to_int(node);
    case kTexts:
      return node.kind == Kind::kList &&
             std::all_of(node.items.begin(), node.items.end(), fits_text);
    case kTextMap:
      return node.kind == Kind::kMap &&
             std::all_of(node.entries.begin(), node.entries.end(), [](Entry& entry) {
               return entry.key.kind == Kind::kString && fits_text(entry.value);
             });
    case kMode:
      return is_mode(node);
    case kMap:
      return node.kind == Kind::kMap;
    case kAny:
      return true;
  }
  return false;
}

[[noreturn]] void fail_type(const Node& node, std::string_view path, std::string_view fix) {
  throw UserError(fmt::format(
      "{}: hydra.{}: Value '{}' of type '{}' could not be converted; give {}", node.place.str(),
      path, shown(python_str(node)), python_type(node), fix));
}

/// The sections on the way to a key are maps, where they are at all.
Node* find_in_sections(Node& hydra, std::string_view path) {
  Node* node = &hydra;
  for (std::size_t dot = 0; dot != std::string_view::npos;) {
    const std::size_t next = path.find('.', dot);
    Node* inner = node->find(path.substr(dot, next == std::string_view::npos ? next : next - dot));
    if (inner == nullptr) return nullptr;
    const bool section = next != std::string_view::npos;
    if (section && inner->kind != Kind::kMap) {
      if (!is_open(*inner)) fail_type(*inner, path.substr(0, next), "a map");
      return nullptr;
    }
    node = inner;
    dot = section ? next + 1 : next;
  }
  return node;
}

bool is_own(const Place& place) { return place.str().empty() || place.str().starts_with("hydra/"); }

bool has_given_part(const Node& node) {
  if (!node.is_container() || (node.items.empty() && node.entries.empty()))
    return !is_own(node.place);
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

void check_hydra_keys(const Node& hydra) { check_section(hydra, ""); }

void convert_hydra(Node& hydra) {
  for (const HydraKey& key : kKeys) {
    Node* node = find_in_sections(hydra, key.path);
    if (node != nullptr && !convert(*node, key)) fail_type(*node, key.path, wanted(key.type));
  }
}

bool is_hydra_field(const std::string& path) {
  if (path == "hydra") return true;
  const std::string own = path.starts_with("hydra.") ? path.substr(6) : "";
  return !own.empty() && (is_section(own) || find_key(own) != nullptr);
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
