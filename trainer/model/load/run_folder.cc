#include "trainer/model/load/run_folder.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <utility>

#include "launcher/worker_contract.h"
#include "trainer/config/config.h"
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

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string list_of(const std::string& snapshot) { return snapshot + std::string(kListSuffix); }

std::string snapshot_of(const std::string& list) {
  return list.substr(0, list.size() - kListSuffix.size());
}

/// Where the run whose records are in a folder keeps its snapshots, or "", also once those of
/// another run are there.
std::string recorded_snapshot(const std::string& folder) {
  static const nlohmann::json::json_pointer kPath("/config/trainer_config/snapshot_path");
  static const nlohmann::json::json_pointer kRunId("/environment/run_id");
  const auto text = read_small_file((fs::path(folder) / "run_info.json").string());
  if (!text || nests_too_deeply(*text)) return "";
  const auto info = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const auto path = info.is_object() ? info.value(kPath, nlohmann::json()) : nlohmann::json();
  if (!path.is_string()) return "";
  const std::string snapshot = behind_links(path.get<std::string>()), list = list_of(snapshot);
  const auto manifest = exists(list) ? read_manifest(list) : std::nullopt;
  if (!manifest || !manifest->run_id) return "";
  return info.value(kRunId, nlohmann::json()) == nlohmann::json(*manifest->run_id) ? snapshot : "";
}

/// The lists of the runs in a folder, by their newest snapshots, links followed.
std::map<std::string, std::string> lists_in(const std::string& folder) {
  std::map<std::string, std::string> lists;
  for (const auto& file : files_next_to((fs::path(folder) / "*").string())) {
    const std::string there = behind_links(file);
    if (file.ends_with(kListSuffix)) {
      const bool is_there = there.ends_with(kListSuffix) && !exists(snapshot_of(file));
      lists[behind_links(snapshot_of(is_there ? there : file))] = file;
    } else if (there != file && exists(list_of(there))) {
      lists.emplace(there, list_of(there));
    }
  }
  // A model that was exported to the folder is what the folder is.
  if (!lists.empty() || exists((fs::path(folder) / "config.json").string())) return lists;
  const std::string elsewhere = recorded_snapshot(folder);
  if (!elsewhere.empty()) lists[elsewhere] = list_of(elsewhere);
  return lists;
}

std::pair<std::string, std::string> only_run_in(const std::string& folder) {
  const auto lists = lists_in(folder);
  if (lists.size() == 1) return *lists.begin();
  throw UserError(
      fmt::format("{}: holds the snapshots of {} runs; name one file", folder, lists.size()));
}

/// The best snapshot of the run whose newest is `newest`, if the run was to end with it, or "".
std::string wanted_best(const std::string& newest, const std::string& list) {
  const auto manifest = read_manifest(list);
  if (!manifest || manifest->best_file.empty()) return "";
  const auto metadata = snapshot_metadata(newest);
  if (manifest->run_id != metadata.at("run_id").get<std::string>()) return "";
  const Config config = config_from_json(metadata.at("config").get<std::string>());
  if (!config.trainer.load_best_model_at_end) return "";
  for (const std::string& neighbour : {newest, list}) {
    const auto best = fs::path(neighbour).parent_path() / fs::path(manifest->best_file).filename();
    if (exists(best)) return behind_links(best);
  }
  return "";
}

std::string best_object(const nlohmann::json& manifest) {
  for (const auto& entry : manifest["snapshots"]) {
    if (!entry.is_object() || entry.value("file", nlohmann::json()) != manifest["best"]) continue;
    const nlohmann::json object = entry.value("object", nlohmann::json());
    return object.is_string() ? object.get<std::string>() : "";
  }
  return "";
}

RoundFence round_of(const nlohmann::json& manifest) {
  const auto round = manifest.value("round", nlohmann::json());
  if (!round.is_object() || !round.contains("job") || !round["job"].is_string() ||
      !round.contains("epoch") || !round["epoch"].is_number_integer())
    return {};
  return {round["job"], round["epoch"]};
}

}  // namespace

RoundFence RoundFence::of_environment() {
  const char* job = std::getenv(launch::kRoundJob);
  const char* epoch = std::getenv(launch::kRoundEpoch);
  if (job == nullptr || epoch == nullptr) return {};
  return {job, std::strtoll(epoch, nullptr, 10)};
}

std::optional<Manifest> read_manifest(const std::string& path) {
  const auto text = read_small_file(path);
  if (!text && errno != ENOENT) throw UnreadableError(path, errno);
  if (!text || nests_too_deeply(*text)) return std::nullopt;
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  if (!json.is_object() || !json.contains("best") || !json.contains("snapshots"))
    return std::nullopt;
  Manifest manifest;
  if (json.contains("run") && json["run"].is_string()) manifest.run_id = json["run"];
  if (json.contains("attempt") && json["attempt"].is_number_integer())
    manifest.attempt = json["attempt"];
  manifest.round = round_of(json);
  manifest.best_object = best_object(json);
  if (json["best"].is_string()) manifest.best_file = json["best"];
  return manifest;
}

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
  std::string newest = behind_links(path), list = list_of(newest);
  if (folder) std::tie(newest, list) = only_run_in(path);
  std::string best;
  try {
    best = wanted_best(newest, list);
  } catch (const std::exception& error) {
    if (folder)
      note_on_one_rank(
          fmt::format("Using {}, the newest snapshot of its run, as {}", newest, error.what()));
    return newest;
  }
  const bool differs = !best.empty() && best != newest;
  const std::string& chosen = folder && differs ? best : newest;
  if (folder) {
    note_on_one_rank(fmt::format("Using {}, the {} snapshot of its run", chosen,
                                 best.empty() ? "newest" : "best"));
  } else if (differs) {
    note_on_one_rank(
        fmt::format("Using {}, the newest snapshot of its run; the best is {}", newest, best));
  }
  return chosen;
}

}  // namespace ddp::train
