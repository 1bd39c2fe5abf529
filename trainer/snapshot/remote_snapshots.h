// Snapshots in an object store: the run works with a local folder; the store receives copies in the
// background and supplies machines without any.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trainer/config/trainer_config.h"
#include "trainer/runtime/files/remote_path.h"
#include "trainer/runtime/files/temporary_folder.h"
#include "trainer/runtime/log/log.h"
#include "trainer/snapshot/snapshot_folder.h"
#include "trainer/storage/remote_mirror.h"

namespace ddp::train {

/// Local path for this snapshot_path: itself, its link target or, for s3://bucket/key,
/// <snapshot_cache>/s3/bucket/key.
std::string local_snapshot_path(const TrainerConfig& config);

/// A temporary local copy of `path`; for a local path chosen_snapshot(). Throws RunError if the
/// object cannot be fetched, UserError if a local file is not a snapshot.
class FetchedSnapshot {
 public:
  explicit FetchedSnapshot(const std::string& path);
  const std::string& file() const { return file_; }

 private:
  std::string file_;
  std::optional<TemporaryFolder> folder_;  // of a remote one
};

/// Used on global rank 0 only. Each snapshot is the object `<name>.step-<n>`, and
/// `<name>.manifest.json` lists those that belong together.
class RemoteSnapshots {
 public:
  /// `url` is a remote snapshot_path, `local` the folder of its copies.
  RemoteSnapshots(const std::string& url, const SnapshotFolder& local, Log& log);
  ~RemoteSnapshots();

  /// Call before the run looks for a snapshot: if the store has a newer one than this machine,
  /// downloads it under the local name (or its predecessor, if it is damaged). Waits at most 30 s
  /// for an unreachable store, then continues with local files and a warning. Throws RunError if
  /// there are none either: training from scratch might replace what the store holds. Throws
  /// RunError if the store refuses (credentials, bucket).
  ///
  /// Also fetches the best snapshot in the store's manifest, which then stays the best one here.
  /// Uses only snapshots of the manifest's run. Removes what an earlier machine left of that run if
  /// it is older than its last save_total_limit snapshots; never what is newer than the state that
  /// the run resumes from.
  void fetch_newest();

  /// Uploads the current contents of `local`. Returns immediately.
  void publish();

  /// Waits until everything is uploaded, at most `limit`, polling `go_on`. Logs what is missing.
  void finish(std::chrono::milliseconds limit, const std::function<bool()>& go_on);

 private:
  std::vector<std::string> objects_by_age(const std::vector<RemoteEntry>& entries) const;
  std::optional<Manifest> fetch_manifest(const std::vector<RemoteEntry>& entries) const;
  std::vector<std::string> fetch_newer_than(int64_t here);
  std::vector<std::string> fetch_shards(const std::string& index);
  bool download(const std::string& object, const std::string& file);
  void fetch_best(const std::string& best);
  std::set<std::string> removable(const std::vector<std::string>& objects) const;
  std::vector<MirroredFile> files_to_send() const;

  RemotePath remote_;
  const SnapshotFolder& local_;
  Log& log_;
  std::unique_ptr<RemoteFolder> folder_;  // until the mirror has it
  std::optional<std::string> run_id_;     // the run whose snapshots the store holds, once known
  std::vector<MirroredFile> fetched_;
  std::unique_ptr<RemoteMirror> mirror_;
};

}  // namespace ddp::train
