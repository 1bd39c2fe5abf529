#include "trainer/config/hydra_defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "trainer/config/node_text.h"
#include "trainer/config/suggest.h"
#include "trainer/config/yaml_reader.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

const std::map<std::string, std::string>& texts() {
  static const std::map<std::string, std::string> all = {
      {"hydra/config", R"(defaults:
- output: default
- launcher: basic
- sweeper: basic
- help: default
- hydra_help: default
- hydra_logging: default
- job_logging: default
- callbacks: null
- env: default
mode: null
searchpath: []
run: {dir: '???'}
sweep: {dir: '???', subdir: '???'}
hydra_logging: ???
job_logging: ???
sweeper: ???
launcher: ???
callbacks: {}
env: {}
help: {app_name: '???', header: '???', footer: '???', template: '???'}
hydra_help: {hydra_help: '???', template: '???'}
output_subdir: .hydra
overrides: {hydra: [], task: []}
job:
  name: ???
  chdir: null
  override_dirname: ???
  id: ???
  num: ???
  config_name: ???
  env_set: {}
  env_copy: []
  config: {override_dirname: {kv_sep: '=', item_sep: ',', exclude_keys: []}}
runtime:
  version: ???
  version_base: ???
  cwd: ???
  config_sources: ???
  output_dir: ???
  choices: {}
verbose: false
)"},
      {"hydra/output/default", R"(# @package hydra
run: {dir: .}
sweep: {dir: 'multirun/${now:%Y-%m-%d}/${now:%H-%M-%S}', subdir: '${hydra.job.num}'}
)"},
      {"hydra/launcher/basic", "_target_: trainer\n"},
      {"hydra/sweeper/basic", "_target_: trainer\nmax_batch_size: null\nparams: null\n"},
      {"hydra/help/default",
       "app_name: ${hydra.job.name}\nheader: trainer --help\nfooter: ''\ntemplate: ''\n"},
      {"hydra/hydra_help/default", "template: trainer --help\n"},
      {"hydra/env/default", ""},
      {"hydra/hydra_logging/default", "root: {level: INFO}\n"},
      {"hydra/hydra_logging/none", "root: null\n"},
      {"hydra/hydra_logging/disabled", "root: {level: ERROR}\n"},
      {"hydra/hydra_logging/hydra_debug", "root: {level: ERROR}\n"},
      {"hydra/job_logging/default", R"(formatters:
  simple: {format: '[%(asctime)s][%(name)s][%(levelname)s] - %(message)s'}
handlers:
  console: {stream: stderr}
  file: {filename: '${hydra.runtime.output_dir}/main.log'}
root: {level: INFO, handlers: [console, file]}
)"},
      {"hydra/job_logging/stdout", "root: {level: INFO, handlers: [console]}\n"},
      {"hydra/job_logging/none", "root: null\n"},
      {"hydra/job_logging/disabled", "root: {level: ERROR}\n"},
  };
  return all;
}

/// Blocks whose keys are fixed; the others take any.
const std::vector<std::string>& closed_blocks() {
  static const std::vector<std::string> all = {"",
                                               "run",
                                               "sweep",
                                               "overrides",
                                               "job",
                                               "job.config",
                                               "job.config.override_dirname",
                                               "runtime",
                                               "sweeper",
                                               "launcher",
                                               "help",
                                               "hydra_help"};
  return all;
}

const Node& known_tree() {
  static const Node tree = [] {
    Node root = read_yaml(texts().at("hydra/config"), "hydra/config");
    std::erase_if(root.entries, [](const Entry& entry) { return entry.key.text == "defaults"; });
    for (const std::string name : {"sweeper", "launcher"})
      set_path(root, name, read_yaml(texts().at("hydra/" + name + "/basic"), "hydra/" + name));
    return root;
  }();
  return tree;
}

void check_block(const Node& block, const Node& known, const std::string& path) {
  if (block.kind != Kind::kMap) {
    throw UserError(fmt::format("{}: hydra{}{}: is a block of Hydra's settings, not a value",
                                block.place.str(), path.empty() ? "" : ".", path));
  }
  for (const Entry& entry : block.entries) {
    const std::string name = python_str(entry.key);
    if (known.find(name) != nullptr) continue;
    std::vector<std::string> names;
    for (const Entry& other : known.entries) names.push_back(other.key.text);
    const std::string near = nearest(name, names);
    const std::string parent = path.empty() ? "hydra" : "hydra." + path;
    throw UserError(fmt::format("{}: {}.{}: unknown key (Key '{}' is not in struct); {}",
                                entry.key.place.str(), parent, name, name,
                                near.empty() ? fmt::format("known are {}", fmt::join(names, ", "))
                                             : fmt::format("did you mean '{}.{}'?", parent, near)));
  }
}

}  // namespace

const std::string* hydra_config_text(const std::string& path) {
  const auto found = texts().find(path);
  return found == texts().end() ? nullptr : &found->second;
}

bool hydra_has_group(const std::string& group) {
  return !group.empty() && texts().lower_bound(group + "/") != texts().end() &&
         texts().lower_bound(group + "/")->first.starts_with(group + "/");
}

std::vector<std::string> hydra_options(const std::string& group) {
  std::vector<std::string> names;
  for (const auto& [path, text] : texts()) {
    const bool inside =
        path.starts_with(group + "/") && path.find('/', group.size() + 1) == std::string::npos;
    if (inside) names.push_back(path.substr(group.size() + 1));
  }
  return names;
}

void check_hydra_keys(const Node& hydra) {
  for (const std::string& path : closed_blocks()) {
    const Node* block = path.empty() ? &hydra : find_path(hydra, path);
    const Node* known = path.empty() ? &known_tree() : find_path(known_tree(), path);
    if (block != nullptr) check_block(*block, *known, path);
  }
}

}  // namespace ddp::train
