#include "trainer/snapshot/snapshot_manifest.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace ddp::train {
namespace {

using Json = nlohmann::ordered_json;

std::string best_object(const Json& manifest) {
  for (const auto& entry : manifest["snapshots"]) {
    if (!entry.is_object() || entry.value("file", Json()) != manifest["best"]) continue;
    const Json object = entry.value("object", Json());
    return object.is_string() ? object.get<std::string>() : "";
  }
  return "";
}

}  // namespace

const SnapshotEntry* best_entry(const std::vector<SnapshotEntry>& entries) {
  const SnapshotEntry* best = nullptr;
  for (const auto& entry : entries) {
    if (entry.eval_loss && (best == nullptr || *entry.eval_loss <= *best->eval_loss)) best = &entry;
  }
  return best;
}

std::string older_snapshot_path(const std::string& path, int64_t step) {
  return fmt::format("{}.step-{}", path, step);
}

std::string manifest_text(const std::string& name, const std::string& run_id,
                          const std::vector<SnapshotEntry>& entries) {
  Json list = Json::array();
  for (const auto& entry : entries) {
    list.push_back({{"file", entry.file},
                    {"object", older_snapshot_path(name, entry.step)},
                    {"step", entry.step},
                    {"epoch", entry.epoch},
                    {"eval_loss", entry.eval_loss ? Json(*entry.eval_loss) : Json()},
                    {"bytes", entry.bytes}});
  }
  const SnapshotEntry* best = best_entry(entries);
  const Json manifest = {{"run", run_id},
                         {"newest", entries.empty() ? Json() : Json(entries.front().file)},
                         {"best", best != nullptr ? Json(best->file) : Json()},
                         {"snapshots", list}};
  return manifest.dump(2) + "\n";
}

std::optional<Manifest> read_manifest(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  const auto json = Json::parse(file, nullptr, false);
  if (!json.is_object() || !json.contains("best") || !json.contains("snapshots"))
    return std::nullopt;
  Manifest manifest;
  if (json.contains("run") && json["run"].is_string()) manifest.run_id = json["run"];
  manifest.best_object = best_object(json);
  return manifest;
}

}  // namespace ddp::train
