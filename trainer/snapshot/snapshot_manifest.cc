#include "trainer/snapshot/snapshot_manifest.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "launcher/worker_contract.h"
#include "trainer/runtime/error.h"
#include "trainer/runtime/files/foreign_json.h"
#include "trainer/runtime/files/small_file.h"
#include "trainer/snapshot/shard_file.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

std::string best_object(const OrderedJson& manifest) {
  for (const auto& entry : manifest["snapshots"]) {
    if (!entry.is_object() || entry.value("file", OrderedJson()) != manifest["best"]) continue;
    const OrderedJson object = entry.value("object", OrderedJson());
    return object.is_string() ? object.get<std::string>() : "";
  }
  return "";
}

RoundFence round_of(const OrderedJson& manifest) {
  const auto round = manifest.value("round", OrderedJson());
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

SnapshotEntry entry_of(const std::string& file, const SnapshotMeta& meta) {
  SnapshotEntry entry{
      fs::path(file).filename().string(), meta.step, meta.cursor.epoch, {}, 0.0, "", 0};
  if (meta.last_eval && meta.last_eval->step == meta.step) {
    entry.eval_loss = meta.last_eval->loss;
    entry.score = meta.last_eval->score;
    entry.basis = meta.last_eval->basis;
  }
  std::error_code ignored;
  const auto bytes = fs::file_size(file, ignored);
  if (!ignored) entry.bytes = bytes;
  try {
    for (const auto& shard : shard_paths(file)) {
      const auto more = fs::file_size(shard, ignored);
      if (!ignored) entry.bytes += more;
    }
  } catch (const std::exception&) {  // nothing depends on the size
  }
  return entry;
}

const SnapshotEntry* best_entry(const std::vector<SnapshotEntry>& entries) {
  const SnapshotEntry* newest = nullptr;
  const SnapshotEntry* best = nullptr;
  for (const auto& entry : entries) {
    if (!entry.eval_loss) continue;
    if (newest == nullptr) newest = &entry;
    if (entry.basis != newest->basis || std::isnan(entry.score)) continue;
    if (best == nullptr || entry.score <= best->score) best = &entry;
  }
  return best;
}

std::string older_snapshot_path(const std::string& path, int64_t step) {
  return fmt::format("{}.step-{}", path, step);
}

std::string manifest_text(const std::string& name, const std::string& run_id, int64_t attempt,
                          const RoundFence& round, const std::vector<SnapshotEntry>& entries) {
  OrderedJson list = OrderedJson::array();
  for (const auto& entry : entries) {
    list.push_back({{"file", entry.file},
                    {"object", older_snapshot_path(name, entry.step)},
                    {"step", entry.step},
                    {"epoch", entry.epoch},
                    {"eval_loss", entry.eval_loss ? OrderedJson(*entry.eval_loss) : OrderedJson()},
                    {"bytes", entry.bytes}});
  }
  const SnapshotEntry* best = best_entry(entries);
  OrderedJson manifest = {{"run", run_id}, {"attempt", attempt}};
  if (!round.job.empty()) manifest["round"] = {{"job", round.job}, {"epoch", round.epoch}};
  manifest["newest"] = entries.empty() ? OrderedJson() : OrderedJson(entries.front().file);
  manifest["best"] = best != nullptr ? OrderedJson(best->file) : OrderedJson();
  manifest["snapshots"] = list;
  return manifest.dump(2) + "\n";
}

std::optional<Manifest> read_manifest(const std::string& path) {
  const auto text = read_small_file(path);
  if (!text && errno != ENOENT) throw UnreadableError(path, errno);
  if (!text || nests_too_deeply(*text)) return std::nullopt;
  const auto json = OrderedJson::parse(*text, nullptr, false);
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

}  // namespace ddp::train
