// Writes the list of a run's snapshots, stored next to them, `<name>.manifest.json` (`run`: the
// run's id; `file`: the name here; `object`: its name in an object store, where names do not
// change); run_folder.h reads it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/model/load/run_folder.h"
#include "trainer/snapshot/snapshot_meta.h"

namespace ddp::train {

/// One file, as its own header describes it.
struct SnapshotEntry {
  std::string file;  ///< Name without the folder.
  int64_t step = 0;
  int64_t epoch = 0;
  std::optional<double> eval_loss;  ///< At this step.
  double score = 0.0;               ///< With an eval_loss: EvalRecord::score,
  std::string basis;                ///< and EvalRecord::basis.
  uint64_t bytes = 0;               ///< With its shards.
};

/// The entry of a snapshot in `file` with this metadata.
SnapshotEntry entry_of(const std::string& file, const SnapshotMeta& meta);

/// Returns the entry with the best evaluation, the earliest of equals; null if none has one.
/// Entries evaluated on another basis than the newest evaluated one, and NaN scores, do not count.
const SnapshotEntry* best_entry(const std::vector<SnapshotEntry>& entries);

/// Returns the name of an older snapshot of `step` next to `path`.
std::string older_snapshot_path(const std::string& path, int64_t step);

/// `name`: the newest one's; `entries`, newest first, may be empty before the first save.
/// `attempt`: the current start of the run, in `round`.
std::string manifest_text(const std::string& name, const std::string& run_id, int64_t attempt,
                          const RoundFence& round, const std::vector<SnapshotEntry>& entries);

}  // namespace ddp::train
