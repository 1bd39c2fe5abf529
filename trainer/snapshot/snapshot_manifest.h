// The list of a run's snapshots, stored next to them, `<name>.manifest.json` (`run`: the run's id;
// `file`: the name here; `object`: its name in an object store, where names do not change).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/snapshot/snapshot_meta.h"

namespace ddp::train {

/// The job and round that a process belongs to (launcher/worker_contract.h).
/// Only the newest round of a job may write. Rounds of different jobs, and processes
/// without a launcher, cannot be compared: a restarted job begins with small epochs.
struct RoundFence {
  std::string job;    ///< DDP_ROUND_JOB; "": none.
  int64_t epoch = 0;  ///< DDP_ROUND_EPOCH.

  static RoundFence of_environment();
  /// Whether a process of this round must yield to one of `other`.
  bool is_behind(const RoundFence& other) const {
    return !job.empty() && job == other.job && epoch < other.epoch;
  }
};

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

/// The parts of a manifest that other code needs.
struct Manifest {
  std::optional<std::string> run_id;  ///< None: it was damaged, or there is no manifest.
  int64_t attempt = 0;                ///< Number of the last start.
  RoundFence round;                   ///< Round of the last start by ddp-run.
  std::string best_object;            ///< "" if there is no best one.
  std::string best_file;              ///< Its name here; "" likewise.
};

/// Returns nullopt if there is no such file or it is not a list of snapshots. Throws UserError if
/// it cannot be read.
std::optional<Manifest> read_manifest(const std::string& path);

}  // namespace ddp::train
