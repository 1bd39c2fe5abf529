#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "trainer/data/tokens/token_shards.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/lower_extension.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> matches(const std::string& pattern) {
  ::glob_t found = {};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  std::sort(paths.begin(), paths.end());  // glob() sorts by the locale
  return paths;
}

const std::string* first_with(const std::vector<std::string>& paths, std::string_view word) {
  const auto found = std::find_if(paths.begin(), paths.end(), [word](const std::string& path) {
    return fs::path(path).filename().string().find(word) != std::string::npos;
  });
  return found == paths.end() ? nullptr : &*found;
}

/// nanoGPT and llm.c keep both sets in one folder.
void refuse_mixture(const std::string& folder, const std::vector<std::string>& paths) {
  const std::string* train = first_with(paths, "train");
  const std::string* validation = first_with(paths, "val");
  if (train == nullptr || validation == nullptr) return;
  throw UserError(
      fmt::format("{}: holds files for training and for validation; name each: data_config.path={} "
                  "data_config.eval_path={}",
                  folder, *train, *validation));
}

std::vector<std::string> files_of_folder(const std::string& folder, std::string_view extension) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (lower_extension(entry.path()) == extension) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

std::vector<std::string> find_data_files(const std::string& path, std::string_view extension) {
  std::error_code error;
  if (fs::is_directory(path, error)) return files_of_folder(path, extension);
  if (fs::exists(path, error)) return {path};
  return matches(path);
}

std::vector<std::string> find_shards(const std::string& path) {
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  std::vector<std::string> paths = find_data_files(path, ".bin");
  if (paths.empty()) {
    throw UserError(path + (folder ? ": holds no .bin file of tokens; write some with trainer "
                                     "tokenize"
                                   : ": no such file, folder or glob of token files"));
  }
  if (folder) refuse_mixture(path, paths);
  return paths;
}

}  // namespace ddp::train
