#include "trainer/config/hydra_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "trainer/config/message.h"
#include "trainer/config/node_text.h"
#include "trainer/config/python_number.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

enum class HydraType {
  kSection,
  kText,
  kOptionalText,
  kOptionalBool,
  kInt,
  kOptionalInt,
  kTexts,
  kTextMap,
  kOptionalTextMap,
  kMap,
  kMode,
  kAny
};

struct HydraField {
  std::string_view path;
  HydraType type;
};

using enum HydraType;

constexpr std::array<HydraField, 50> kFields = {{
    {"mode", kMode},
    {"searchpath", kTexts},
    {"run", kSection},
    {"run.dir", kText},
    {"sweep", kSection},
    {"sweep.dir", kText},
    {"sweep.subdir", kText},
    {"hydra_logging", kMap},
    {"job_logging", kMap},
    {"sweeper", kAny},
    {"sweeper._target_", kText},
    {"sweeper.max_batch_size", kOptionalInt},
    {"sweeper.params", kOptionalTextMap},
    {"launcher", kAny},
    {"launcher._target_", kText},
    {"callbacks", kMap},
    {"env", kAny},
    {"help", kSection},
    {"help.app_name", kText},
    {"help.header", kText},
    {"help.footer", kText},
    {"help.template", kText},
    {"hydra_help", kSection},
    {"hydra_help.hydra_help", kText},
    {"hydra_help.template", kText},
    {"output_subdir", kOptionalText},
    {"overrides", kSection},
    {"overrides.hydra", kTexts},
    {"overrides.task", kTexts},
    {"job", kSection},
    {"job.name", kText},
    {"job.chdir", kOptionalBool},
    {"job.override_dirname", kText},
    {"job.id", kText},
    {"job.num", kInt},
    {"job.config_name", kOptionalText},
    {"job.env_set", kTextMap},
    {"job.env_copy", kTexts},
    {"job.config", kSection},
    {"job.config.override_dirname", kSection},
    {"job.config.override_dirname.kv_sep", kText},
    {"job.config.override_dirname.item_sep", kText},
    {"job.config.override_dirname.exclude_keys", kTexts},
    {"runtime", kSection},
    {"runtime.version", kText},
    {"runtime.version_base", kText},
    {"runtime.cwd", kText},
    {"runtime.output_dir", kText},
    {"runtime.choices", kMap},
    {"verbose", kAny},
}};

std::string_view type_name(HydraType type) {
  switch (type) {
    case kText:
    case kOptionalText:
      return "a text";
    case kOptionalBool:
      return "true or false";
    case kInt:
    case kOptionalInt:
      return "an integer";
    case kTexts:
      return "a list of texts";
    case kMode:
      return "RUN or MULTIRUN";
    default:
      return "a map";
  }
}

bool to_text(Node& node) {
  if (node.is_container() || node.kind == Kind::kNull) return false;
  const Place place = node.place;
  node = Node::of(python_str(node));
  node.place = place;
  return true;
}

bool to_int(Node& node) {
  if (node.kind == Kind::kInt) return true;
  const auto parsed = node.kind == Kind::kString ? python_int(node.text) : std::nullopt;
  if (!parsed) return false;
  const Place place = node.place;
  node = Node::of(*parsed);
  node.place = place;
  return true;
}

bool to_bool(Node& node) {
  if (node.kind == Kind::kBool) return true;
  std::string word = node.text;
  std::transform(word.begin(), word.end(), word.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  const bool yes = word == "yes" || word == "y" || word == "on" || word == "true";
  const bool no = word == "no" || word == "n" || word == "off" || word == "false";
  const bool text = node.kind == Kind::kString && (yes || no);
  if (!text && !to_int(node)) return false;
  const Place place = node.place;
  node = Node::of(text ? yes : node.integer != 0);
  node.place = place;
  return true;
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

bool to_text_map(Node& node) {
  return node.kind == Kind::kMap &&
         std::all_of(node.entries.begin(), node.entries.end(), [](Entry& entry) {
           return entry.key.kind == Kind::kString && fits_text(entry.value);
         });
}

bool convert(Node& node, HydraType type) {
  const bool null = node.kind == Kind::kNull;
  if (is_open(node)) return true;
  switch (type) {
    case kText:
      return to_text(node);
    case kOptionalText:
      return null || to_text(node);
    case kOptionalBool:
      return null || to_bool(node);
    case kInt:
      return to_int(node);
    case kOptionalInt:
      return null || to_int(node);
    case kTexts:
      return node.kind == Kind::kList &&
             std::all_of(node.items.begin(), node.items.end(), fits_text);
    case kTextMap:
      return to_text_map(node);
    case kOptionalTextMap:
      return null || to_text_map(node);
    case kMode:
      return null || is_mode(node);
    case kMap:
    case kSection:
      return node.kind == Kind::kMap;
    case kAny:
      return true;
  }
  return false;
}

}  // namespace

void convert_hydra(Node& hydra) {
  for (const HydraField& field : kFields) {
    auto* const node = const_cast<Node*>(find_path(hydra, std::string(field.path)));
    if (node == nullptr || convert(*node, field.type)) continue;
    throw UserError(fmt::format(
        "{}: hydra.{}: Value '{}' of type '{}' could not be converted; give {}", node->place.str(),
        field.path, shown(python_str(*node)), python_type(*node), type_name(field.type)));
  }
}

bool is_hydra_field(const std::string& path) {
  if (path == "hydra") return true;
  return std::any_of(kFields.begin(), kFields.end(), [&path](const HydraField& field) {
    return path.starts_with("hydra.") && path.substr(6) == field.path;
  });
}

}  // namespace ddp::train
