#include "trainer/model/load/run_folder.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "trainer/config/keys/config_text.h"
#include "trainer/model/load/pretrained_json.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/atomic_file.h"
#include "trainer/runtime/files/foreign_json.h"
#include "trainer/runtime/files/small_file.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kListSuffix = ".manifest.json";

/// The lists of snapshots in a folder, each for the newest of a run.
std::vector<std::string> lists_in(const std::string& folder) {
  auto files = files_next_to((fs::path(folder) / "*").string());
  std::erase_if(files, [](const std::string& file) { return !file.ends_with(kListSuffix); });
  return files;
}

/// The best snapshot of the run whose newest is `path`, if the run was to end with it, or "".
std::string wanted_best(const std::string& path) {
  const auto text = read_small_file(path + std::string(kListSuffix));
  if (!text || nests_too_deeply(*text)) return "";
  const auto list = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const auto metadata = snapshot_metadata(path);
  const bool is_its =
      list.is_object() && list.value("run", nlohmann::json()) == metadata.at("run_id");
  if (!is_its || !list.contains("best") || !list["best"].is_string()) return "";
  const Config config = config_from_json(metadata.at("config").get<std::string>());
  const fs::path best = list["best"].get<std::string>();
  const fs::path file = fs::path(path).parent_path() / best.filename();
  std::error_code ignored;
  const bool wanted = config.trainer.load_best_model_at_end && fs::exists(file, ignored);
  return wanted ? file.string() : "";
}

std::string newest_in(const std::string& folder) {
  const auto lists = lists_in(folder);
  if (lists.size() == 1) return lists[0].substr(0, lists[0].size() - kListSuffix.size());
  throw UserError(
      fmt::format("{}: holds the snapshots of {} runs; name one file", folder, lists.size()));
}

/// On one rank.
void say(const std::string& text) {
  const char* rank = std::getenv("RANK");
  if (rank == nullptr || std::string_view(rank) == "0") fmt::print(stderr, "{}\n", text);
}

}  // namespace

std::string behind_links(const std::string& path) {
  constexpr int kMost = 40;  // as the kernel
  std::error_code error;
  fs::path file = path;
  for (int links = 0; links < kMost && fs::is_symlink(file, error); ++links)
    file = file.parent_path() / fs::read_symlink(file, error);
  return file.string();
}

bool is_run_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) && !lists_in(path).empty();
}

std::string chosen_snapshot(const std::string& path) {
  const bool folder = is_run_folder(path);
  const std::string newest = behind_links(folder ? newest_in(path) : path);
  std::string best;
  try {
    best = wanted_best(newest);
  } catch (const std::exception& error) {
    if (folder)
      say(fmt::format("Using {}, the newest snapshot of its run, as {}", newest, error.what()));
    return newest;
  }
  const bool differs = !best.empty() && best != newest;
  const std::string& chosen = folder && differs ? best : newest;
  if (folder) {
    say(fmt::format("Using {}, the {} snapshot of its run", chosen,
                    best.empty() ? "newest" : "best"));
  } else if (differs) {
    say(fmt::format("Using {}, the newest snapshot of its run; the best is {}", newest, best));
  }
  return chosen;
}

}  // namespace ddp::train
