#include "trainer/config/load/run_paths.h"

#include <fmt/format.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "trainer/config/config.h"
#include "trainer/hydra/compose/folders.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/hub_name.h"
#include "trainer/runtime/files/remote_path.h"

namespace ddp::train {
namespace {

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

}  // namespace

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

}  // namespace ddp::train
