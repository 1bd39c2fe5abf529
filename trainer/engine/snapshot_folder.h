// The snapshots of one run in a local folder: the newest under the name that the user gave, older
// ones beside it as `<name>.step-<n>`, a list of them in `<name>.manifest.json` (`file`: the name
// here; `object`: its name in an object store, where names do not change).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/engine/snapshot.h"
#include "trainer/runtime/log.h"

namespace ddp::train {

/// One file, as its own header describes it.
struct SnapshotEntry {
  std::string file;  ///< Name without the folder.
  int64_t step = 0;
  int64_t epoch = 0;
  std::optional<double> eval_loss;  ///< Of this very step.
  uint64_t bytes = 0;
};

/// Finds out before training whether a snapshot can be written at `path`: creates the folder and a
/// temporary file in it. Throws UserError with the path and the system's reason.
void prepare_snapshot_folder(const std::string& path);

/// Which entries (newest first) to delete so that `limit` stay, the best by evaluation loss never
/// among them. Indices, oldest first.
std::vector<std::size_t> superseded(const std::vector<SnapshotEntry>& entries, std::size_t limit);

/// The entry with the smallest evaluation loss, the earliest of equals; null when none has one.
const SnapshotEntry* best_entry(const std::vector<SnapshotEntry>& entries);

/// Used by one thread at a time. Does not know about remote storage.
class SnapshotFolder {
 public:
  /// `path` is that of the newest snapshot; `limit` files are kept, at least 1.
  SnapshotFolder(std::string path, int64_t limit, Log& log);

  /// The newest good snapshot, those at `in_memory` (any number of files outside the folder, which
  /// may be unfinished) included. Damaged ones that are met on the way are named in the log and
  /// moved to `<file>.damaged`; the newest one's name goes to the one before it. Nothing when there
  /// is none yet. Throws RunError when there are files but none is good: training from scratch
  /// would overwrite them; they stay as they are.
  std::optional<OpenedSnapshot> find(const std::vector<std::string>& in_memory = {});

  /// Writes a snapshot, then deletes what is superseded and writes the manifest. When the disk is
  /// full, deletes older snapshots one by one, the newest never, and tries again. Throws RunError;
  /// a good snapshot is then still there.
  void publish(
      const SnapshotMeta& meta, const std::vector<TensorBytes>& tensors,
      const PublishObserver& at = [](PublishPhase) {});

  const std::string& path() const { return path_; }
  std::string path_of(const SnapshotEntry& entry) const;
  /// Newest first.
  const std::vector<SnapshotEntry>& entries() const { return entries_; }
  std::size_t limit() const { return limit_; }
  std::string manifest_path() const { return path_ + ".manifest.json"; }

 private:
  struct Damage {
    std::string file;
    std::string reason;
  };
  std::vector<std::string> older_files() const;
  static std::optional<OpenedSnapshot> newest_good(std::vector<OpenedSnapshot> candidates,
                                                   const std::vector<std::string>& in_memory,
                                                   std::vector<Damage>& damages);
  [[noreturn]] void fail_all_damaged(const std::vector<Damage>& damages) const;
  void quarantine(const std::vector<Damage>& damages, OpenedSnapshot& good) const;
  std::string newest_older(const std::string& good) const;
  void scan();
  bool delete_oldest();
  void remove(std::size_t index);
  void write_manifest() const;
  std::string manifest() const;

  std::string path_;
  std::size_t limit_;
  Log& log_;
  std::vector<SnapshotEntry> entries_;
};

/// Name of an older snapshot of `step` beside `path`.
std::string older_snapshot_path(const std::string& path, int64_t step);

}  // namespace ddp::train
