// The snapshots of a run's folder, found by the list next to them (snapshot_manifest.h writes it).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

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

/// Where a link at `path` leads: a file that is published there would take the link's place.
std::string behind_links(const std::string& path);

/// Whether `path` is a run's folder: it has a list of snapshots, a link to a list or to a listed
/// snapshot, or the run_info.json of a run with snapshots elsewhere. Throws UserError if
/// unreadable.
bool is_run_folder(const std::string& path);

/// The snapshot that is meant by a file, links resolved, or by a run's folder: the newest, or the
/// best where the run set load_best_model_at_end; a line on standard error reports which, also if
/// `path` is the newest and another one is the best. Throws UserError if the folder is of several
/// runs. A damaged file is for the caller to find.
std::string chosen_snapshot(const std::string& path);

}  // namespace ddp::train
