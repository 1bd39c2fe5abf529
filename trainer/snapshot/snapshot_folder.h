// The snapshots of one run in a local folder: the newest under the user's name, older ones next to
// it as `<name>.step-<n>`, and their list (snapshot_manifest.h). Files of other runs in the folder
// are neither used, counted nor deleted.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trainer/runtime/error.h"
#include "trainer/runtime/log/log.h"
#include "trainer/snapshot/snapshot.h"
#include "trainer/snapshot/snapshot_manifest.h"

namespace ddp::train {

/// Checks before training that a snapshot can be written to `path`: creates the folder and a
/// temporary file in it. Throws UserError with the path and the system's reason.
void prepare_snapshot_folder(const std::string& path);

/// Returns which of the entries (newest first) to delete so that `limit` remain, never the best by
/// evaluation loss, as indices, oldest first.
std::vector<std::size_t> superseded(const std::vector<SnapshotEntry>& entries, std::size_t limit);

/// Thrown if this process no longer owns the run because a later start of it has published.
class SupersededError : public FinalError {
 public:
  using FinalError::FinalError;
};

/// Used by one thread at a time. Does not know about remote storage.
class SnapshotFolder {
 public:
  /// `path`: the newest snapshot's; `limit`: number of files to keep, at least 1.
  SnapshotFolder(std::string path, int64_t limit, Log& log);

  /// Returns the newest good snapshot of the run at path(), including the files in `in_memory`
  /// (outside the folder, possibly incomplete). Logs damaged ones and moves them to
  /// `<file>.damaged`; the newest one's name passes to its predecessor. Returns nullopt if there is
  /// none yet. Throws RunError, leaving all files alone, if none is good or it is unknown which run
  /// they belong to: training from scratch would overwrite them. Each of `in_memory` is a file, or
  /// the shards of one save.
  using Copies = std::vector<std::vector<std::string>>;
  std::optional<OpenedSnapshot> find(const Copies& in_memory = {});

  /// Call once, after the first find(): continues the run that was found, or begins a new one with
  /// an id, derived from the arguments, that no file here has. Logs which older files it leaves
  /// alone.
  ///
  /// Each start of a run gets an attempt number: one more than the manifest's, where it is recorded
  /// at once, so that a process that was suspended while another one has taken over finds out in
  /// publish(). Snapshots do not contain it: they depend on the training alone.
  ///
  /// Under ddp-run the number alone would not suffice: if a job is split in two, the older part may
  /// start last. So the manifest records the start's `round` as well. Throws SupersededError if it
  /// contains a later round of the same job.
  void begin_run(const std::string& config_json, const std::string& data_sha256,
                 const RoundFence& round = {});
  /// The run's id, for the metadata of everything saved.
  std::string run_id() const { return run_id_.value_or(""); }

  /// Writes a snapshot, then deletes superseded ones and writes the manifest. If the disk is full,
  /// deletes older snapshots one by one, never the newest, and retries. Before the new file takes
  /// its name it is read back. Throws RunError; the last good snapshot is kept. Throws
  /// SupersededError if a later attempt of the run, or a later round of its job, has begun, or the
  /// current file is of a later step.
  void publish(
      const SnapshotMeta& meta, const std::vector<TensorBytes>& tensors,
      const PublishObserver& at = [](PublishPhase) {});

  /// For sharded snapshots, on ranks other than 0: sets what begin_run() determined on rank 0.
  void follow(std::string run_id, int64_t attempt);
  int64_t attempt() const { return attempt_; }
  /// Returns the name of the shards of `step` up to `.R-of-W`: `<name>.step-<n>`, or
  /// `<name>.step-<n>-2`, ... if files with that name belong to another snapshot or run.
  std::string stem_for_shards(int64_t step) const;
  /// Writes this rank's shard of a save; it is durable on return. On any rank. Throws RunError
  /// (NoSpaceError), and SupersededError as publish().
  void write_shard(
      const ShardId& id, const std::string& stem, const std::vector<StatePiece>& pieces,
      const std::vector<TensorBytes>& bytes, const PublishObserver& at = [](PublishPhase) {});
  /// Whether the shards of all ranks exist, complete and of this save.
  bool has_all_shards(const ShardId& id, const std::string& stem) const;
  /// As publish(), for shards that all ranks have written: checks that they hold each element of
  /// `tensors` once, writes the index, and deletes the shards that no snapshot needs any more.
  /// `id` is that of any rank.
  void publish_index(
      const SnapshotMeta& meta, const ShardId& id, const std::string& stem,
      const std::vector<LogicalTensor>& tensors, const PublishObserver& at = [](PublishPhase) {});
  /// Deletes shards of this run that no snapshot needs: of failed or interrupted saves.
  void remove_orphans() const;
  /// Deletes the oldest snapshot other than the newest. Returns false if there is none.
  bool make_room();

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
  using Snapshots = std::vector<OpenedSnapshot>;

  std::vector<std::string> older_files() const;
  Snapshots copies_in(const Copies& in_memory) const;
  std::optional<std::string> run_of(const Snapshots& others, bool listed,
                                    const std::vector<Damage>& damages) const;
  bool is_ours(const OpenedSnapshot& snapshot) const;
  void keep_ours(Snapshots& older, const OpenedSnapshot* newest);
  static std::optional<OpenedSnapshot> newest_good(Snapshots candidates,
                                                   const std::set<std::string>& in_memory,
                                                   std::vector<Damage>& damages);
  [[noreturn]] void fail_all_damaged(const std::vector<Damage>& damages) const;
  void quarantine(const std::vector<Damage>& damages, OpenedSnapshot& good) const;
  std::string newest_older(const std::string& good) const;
  void scan();
  std::string name_for_older(int64_t step) const;
  void name_run(const std::string& config_json, const std::string& data_sha256);
  Manifest present_manifest() const;
  void claim_attempt();
  std::optional<int64_t> step_there(const std::string& run_id) const;
  void check_round(const RoundFence& newest) const;
  void check_not_superseded(const std::string& run_id, int64_t step) const;
  /// Common part of both publish()es; `write` creates path_, keeping the current file as `kept`.
  void publish_by(const SnapshotMeta& meta,
                  const std::function<void(const std::string& kept, const PublishCheck&)>& write);
  std::vector<std::string> shard_files() const;
  std::set<std::string> needed_shards() const;
  bool is_our_shard(const std::string& file) const;
  void remove(std::size_t index);
  void write_manifest() const;

  std::string path_;
  std::size_t limit_;
  Log& log_;
  std::optional<std::string> run_id_;     // once it is known
  int64_t attempt_ = 0;                   // number of this start; 0 before begin_run()
  RoundFence round_;                      // of this start
  std::optional<int64_t> step_at_start_;  // of the file that begin_run() left in place
  bool went_back_ = false;                // path_ is older than another file of its run
  std::vector<SnapshotEntry> entries_;
};

}  // namespace ddp::train
