#include "trainer/config/load/read_run.h"

#include <fmt/format.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

#include "trainer/config/keys/key_table.h"
#include "trainer/config/keys/trainer_keys.h"
#include "trainer/hydra/compose/compose.h"
#include "trainer/hydra/compose/folders.h"
#include "trainer/hydra/interpolation/interpolation.h"
#include "trainer/hydra/yaml/node_text.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/hub_name.h"
#include "trainer/runtime/files/remote_path.h"
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
  if (folder.kind == Kind::kString && !folder.text.empty())  // which to_config() refuses
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

bool matches_a_file(const std::string& pattern) {
  if (pattern.find_first_of("*?[") == std::string::npos) return false;
  ::glob_t found = {};
  const bool some = ::glob(pattern.c_str(), 0, nullptr, &found) == 0;
  ::globfree(&found);
  return some;
}

/// How to get a text that a recipe names, "" for all other files.
std::string how_to_fetch(const std::string& as_given) {
  const std::string path = std::filesystem::path(as_given).lexically_normal().string();
  const bool wikitext = path.starts_with("data/wikitext-2/");
  if (path != "data/input.txt" && !wikitext) return "";
  const std::string script = "./scripts/fetch_data.sh";
  if (access(script.c_str(), X_OK) == 0)
    return fmt::format("{}{} fetches it", script, wikitext ? " wikitext-2" : "");
  // An installed package has no scripts.
  return fmt::format(
      "it is {}, which scripts/fetch_data.sh of the source code puts there; or set "
      "data_config.path to a text of your own",
      wikitext ? "WikiText-2" : "tiny-shakespeare");
}

/// `key` and its value: a file, a folder or a glob. What is in it is seen when it is read.
void check_data_files(const char* key, const std::string& path, const std::string& as_given,
                      const Given& given) {
  struct stat info {};
  const std::string from =
      as_given.starts_with('/')
          ? ""
          : fmt::format(" (from {})", std::filesystem::current_path().string());
  if (stat(path.c_str(), &info) != 0) {
    const int error = errno;
    if (matches_a_file(path)) return;
    const bool is_tokenizer = error == ENOENT && std::string_view(key) == "data_config.tokenizer";
    const std::string choices = "give char, byte, bpe, wordpiece or a folder";
    if (const std::string hub = how_to_fetch_model(as_given); is_tokenizer && !hub.empty())
      given.refuse(key, fmt::format("{}; else {}", hub, choices));
    const std::string fetch = error == ENOENT ? how_to_fetch(as_given) : "";
    const std::string fix =
        error != ENOENT  ? "check the path and its permissions"
        : !fetch.empty() ? fetch
        : is_tokenizer   ? choices
                         : "give a file or a folder; relative paths start at the current directory";
    given.refuse(key, fmt::format("{}: {}{}; {}", as_given, std::strerror(error), from, fix));
  }
  if (access(path.c_str(), R_OK) != 0) {
    given.refuse(key,
                 fmt::format("{}: {}{}; make it readable", as_given, std::strerror(errno), from));
  }
}

void resolve_data_paths(DataConfig& data, const Given& given, DataFiles files) {
  const auto resolve = [&](const char* key, std::string& path) {
    if (path.empty()) return;
    const std::string as_given = std::exchange(path, absolute_path(path));
    if (files == DataFiles::kChecked) check_data_files(key, path, as_given, given);
  };
  resolve("data_config.path", data.path);
  for (WeightedSource& source : data.sources) resolve("data_config.sources", source.path);
  for (NamedSet& set : data.eval_sets) resolve("data_config.eval_sets", set.path);
  resolve("data_config.eval_path", data.eval_path);
  resolve("data_config.test_path", data.test_path);
  if (data.tokenizer == "char" || data.tokenizer == "byte") return;
  if (data.tokenizer == "bpe" || data.tokenizer == "wordpiece") {
    given.refuse("data_config.tokenizer",
                 fmt::format("{0} has to be trained first: run trainer tokenize --tokenizer {0} "
                             "--train ..., and give the folder that it writes",
                             data.tokenizer));
  }
  resolve("data_config.tokenizer", data.tokenizer);
}

/// An object in a store stays as it is; file:// and everything else becomes an absolute path.
void resolve_snapshot_path(std::string& path, const Given& given) {
  try {
    if (is_remote(path)) {
      split_remote(path);
      return;
    }
    path = absolute_path(local_path(path));
  } catch (const UserError& error) {
    given.refuse("trainer_config.snapshot_path", error.what());
  }
}

/// Makes relative paths absolute: against the current directory, but snapshot_path against
/// hydra.run.dir if it was not given, in a job of a sweep, and with hydra.job.chdir. Throws
/// UserError if the data cannot be read.
void resolve_paths(Config& config, const Given& given, bool own_folder, DataFiles data) {
  std::string& snapshot = config.trainer.snapshot_path;
  config.hydra.run_dir = absolute_path(config.hydra.run_dir);
  const bool in_run_folder =
      own_folder || config.hydra.job_chdir || !given.has("trainer_config.snapshot_path");
  const bool relative = snapshot.find("://") == std::string::npos && !snapshot.starts_with('/') &&
                        !snapshot.starts_with('~');
  if (in_run_folder && relative) snapshot = config.hydra.run_dir + "/" + snapshot;
  config.trainer.snapshot_cache = absolute_path(config.trainer.snapshot_cache);
  resolve_snapshot_path(snapshot, given);
  resolve_data_paths(config.data, given, data);
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
