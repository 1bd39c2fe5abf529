#include "trainer/hydra/compose/compose.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "trainer/hydra/compose/defaults_list.h"
#include "trainer/hydra/compose/hydra_block.h"
#include "trainer/hydra/interpolation/interpolation.h"
#include "trainer/hydra/override/override_apply.h"
#include "trainer/runtime/error.h"

namespace ddp::train {

bool is_hydra_override(const Override& change) {
  return change.key.starts_with("hydra.") || change.key.starts_with("hydra/");
}

namespace {

/// With a schema a mistyped key is found before it is created.
void check_override_known(const Override& change, const KnownKeys& keys) {
  std::string parent;
  for (const std::string& part : split_path(change.key)) {
    if (keys.kind_of(parent) == PathKind::kKey) return;  // into a value, which has its own message
    const std::string path = joined_path(parent, part);
    if (keys.kind_of(path) == PathKind::kUnknown)
      keys.fail_unknown(change.value.place, parent, part);
    parent = path;
  }
}

/// A known key that is not there has its default value.
void check_given(const Node& root, const Override& change) {
  if (select_value(root, change.key).kind == Kind::kNull) {
    fail_at(change.value.place,
            "'{}' is not given, so ~ has nothing to remove; its default applies already",
            change.key);
  }
}

std::vector<Override> parse_all(const std::vector<std::string>& texts) {
  std::vector<Override> overrides;
  for (const std::string& text : texts) overrides.push_back(parse_override(text));
  return overrides;
}

/// Further folders to look for configurations in: hydra.searchpath of the primary file, or of the
/// command line.
void add_search_path(ConfigRepository& repository, const std::vector<Override>& overrides) {
  const LoadedConfig* primary = repository.load(repository.source().name);
  Node value;
  if (primary != nullptr && primary->content.kind == Kind::kMap)
    value = select_value(primary->content, "hydra.searchpath");
  for (const Override& change : overrides) {
    if (change.key == "hydra.searchpath" && change.type == OverrideType::kChange)
      value = change.value;
  }
  const bool texts = std::all_of(value.items.begin(), value.items.end(),
                                 [](const Node& item) { return item.kind == Kind::kString; });
  if (value.kind != Kind::kNull && (value.kind != Kind::kList || !texts))
    fail_at(value.place, "hydra.searchpath: must be a list of strings, e.g. [file://folder]");
  for (const Node& item : value.items) {
    const bool local = item.text.starts_with("file://");
    if (local || item.text.find("://") == std::string::npos)
      repository.add_folder(item.text.substr(local ? 7 : 0));
  }
}

Node merged(ConfigRepository& repository, const std::vector<ResultDefault>& configs) {
  Node root = Node::map();
  for (const ResultDefault& config : configs) {
    const LoadedConfig& loaded = *repository.load(config.config_path);
    check_interpolations(loaded.content);
    Node value = loaded.content;
    if (config.package.empty() && value.kind != Kind::kMap) fail_no_map(loaded.file);
    if (!config.package.empty()) {
      value = Node::map();
      set_path(value, config.package, loaded.content);
    }
    const bool searches = !config.primary && config.config_path != "hydra/config" &&
                          select_value(value, "hydra.searchpath").kind != Kind::kNull;
    if (searches) {
      throw UserError(
          fmt::format("{}: '{}' sets hydra.searchpath, which only the primary configuration may "
                      "set; move it there",
                      loaded.file, config.config_path));
    }
    merge(root, {}, root, value, true);
  }
  return root;
}

std::string text_at(const Node& root, const std::string& path, const std::string& otherwise) {
  const Node value = select_value(root, path);
  return value.kind == Kind::kString ? value.text : otherwise;
}

/// hydra.job.override_dirname: the overrides, sorted, as a part of a folder's name.
std::string override_folder(const Node& root, std::vector<Override> changes) {
  const std::string config = "hydra.job.config.override_dirname.";
  const Node excluded = select_value(root, config + "exclude_keys");
  std::erase_if(changes, [&excluded](const Override& change) {
    return is_hydra_override(change) ||
           std::any_of(excluded.items.begin(), excluded.items.end(),
                       [&](const Node& key) { return key.text == change.key; });
  });
  std::vector<std::string> lines;
  for (const Override& change : changes) lines.push_back(change.text);
  std::sort(lines.begin(), lines.end());
  const std::string equal = text_at(root, config + "kv_sep", "=");
  std::string out;
  for (const char c : fmt::format("{}", fmt::join(lines, text_at(root, config + "item_sep", ","))))
    out += c == '=' ? equal : std::string(1, c);
  return out;
}

/// Hydra keeps the overrides in its block, where each must be a text that can be read again.
void check_texts(const std::vector<Override>& changes) {
  for (const Override& change : changes) {
    Node text = Node::of(change.text);
    text.place = change.value.place;
    check_interpolations(text);
  }
}

/// Fills in what Hydra fills in automatically.
void fill_hydra(Composed& composed, const ConfigRepository& repository,
                const std::vector<Override>& changes) {
  Node& root = composed.root;
  std::vector<std::string> of_hydra;
  std::vector<std::string> task;
  for (const Override& change : changes)
    (is_hydra_override(change) ? of_hydra : task).push_back(change.text);
  const Node* name = find_path(root, "hydra.job.name");
  if (name == nullptr || name->is_missing())
    set_path(root, "hydra.job.name", Node::of(std::string("trainer")));
  set_path(root, "hydra.overrides.hydra", Node::texts(of_hydra));
  set_path(root, "hydra.overrides.task", Node::texts(task));
  set_path(root, "hydra.job.override_dirname", Node::of(override_folder(root, changes)));
  set_path(root, "hydra.job.config_name", Node::of(repository.source().name));
  std::error_code error;
  set_path(root, "hydra.runtime.cwd", Node::of(std::filesystem::current_path(error).string()));
  set_path(root, "hydra.runtime.config_sources", Node::texts(repository.folders()));
  Node choices = Node::map();
  for (const auto& [group, option] : composed.choices)
    set_entry(choices, Node::of(group), Node::of(option));
  set_path(root, "hydra.runtime.choices", std::move(choices));
}

}  // namespace

Composed compose_config(const ConfigSource& source, const std::vector<std::string>& overrides,
                        const KnownKeys& keys, RunMode mode) {
  const std::vector<Override> changes = parse_all(overrides);
  refuse_sweeps(changes);
  ConfigRepository repository(source);
  add_search_path(repository, changes);
  const DefaultsList list = make_defaults_list(repository, changes, mode == RunMode::kMultirun);
  Composed composed{merged(repository, list.configs), list.choices, {}, {}};
  for (const ResultDefault& config : list.configs) {
    if (hydra_config_text(config.config_path) == nullptr)
      composed.configs.push_back({repository.load(config.config_path)->file, config.package});
  }
  keys.check_hydra(composed.root, false);
  for (const Override& change : list.value_overrides) {
    if (change.package) {
      fail_at(change.value.place,
              "{}: there is no config group '{}'; add a folder of that name, or write a plain key "
              "without @",
              change.text, change.key);
    }
    const bool hydra = change.key == "hydra" || is_hydra_override(change);
    if (change.type == OverrideType::kDelete && hydra &&
        keys.kind_of(change.key) != PathKind::kUnknown)
      fail_at(change.value.place, "'{}' cannot be removed; set it instead", change.key);
    const bool own = !source.any_keys && !hydra;
    if (own) check_override_known(change, keys);
    if (own && change.type == OverrideType::kDelete) check_given(composed.root, change);
    apply_override(composed.root, change, own);
    if (is_hydra_override(change)) keys.check_hydra(composed.root, source.any_keys);
  }
  check_texts(changes);
  composed.ignored = hydra_without_effect(composed.root, composed.choices);
  fill_hydra(composed, repository, changes);
  return composed;
}

}  // namespace ddp::train
