#include "trainer/snapshot/snapshot_manifest.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "trainer/snapshot/shard_file.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

}  // namespace

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

}  // namespace ddp::train
