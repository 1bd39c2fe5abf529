// Saves the training state without stalling training: copies it while the next step computes,
// writes it on its own thread, and continues if that fails.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "trainer/config/trainer_config.h"
#include "trainer/health/run_monitor.h"
#include "trainer/runtime/log/log.h"
#include "trainer/runtime/process/background_job.h"
#include "trainer/snapshot/ram_snapshots.h"
#include "trainer/snapshot/remote_snapshots.h"
#include "trainer/snapshot/snapshot_folder.h"
#include "trainer/snapshot/state_buffer.h"
#include "trainer/snapshot/training_state.h"

namespace ddp::train {

/// What saving has cost and achieved so far.
struct SaveCounts {
  int64_t saved = 0;
  int64_t failed = 0;
  int64_t skipped = 0;         ///< Due while the previous one was still being written.
  int64_t in_memory = 0;       ///< Copies in shared memory.
  double stall_seconds = 0.0;  ///< Wall time for which saves stalled the training thread.
  double longest_stall = 0.0;  ///< Longest stall of a single save.
};

enum class SaveReason {
  kInterval,  ///< snapshot_every: left out as snapshot_if_busy says; an automatic one is quiet.
  kFixed      ///< save_every, save_every_steps, the end: never skipped, always logged.
};

/// The progress of this rank's shard of the last save.
enum class ShardProgress { kNone, kWriting, kWritten, kFailed };

/// Exists on global rank 0, and on every rank if each writes a shard. Call from the training thread
/// only.
///
/// A sharded save has two phases. save(), on all ranks, writes the shards in the background. Once a
/// collective has established that every shard is on disk, rank 0 calls commit(), which publishes
/// the index. Until then the previous snapshot counts.
class SnapshotKeeper {
 public:
  using Clock = std::chrono::steady_clock;

  /// The state that the run resumed from: its file, or "", and its step.
  struct Resumed {
    std::string file;
    int64_t step = 0;
  };

  /// All references outlive it. `remote` may be null. `shard`: which one this rank writes, if it
  /// does. `flush_records`: what the run has recorded up to a snapshot is in its files; on
  /// the thread that publishes it, before. `published`: on the same thread, after; throws nothing.
  SnapshotKeeper(
      const TrainerConfig& config, SnapshotFolder& folder, RemoteSnapshots* remote,
      RunMonitor& monitor, Log& log, Resumed resumed, const std::optional<ShardRank>& shard = {},
      std::function<void()> flush_records = [] {}, std::function<void()> published = [] {});
  /// Finishes what is being written.
  ~SnapshotKeeper();
  SnapshotKeeper(const SnapshotKeeper&) = delete;
  SnapshotKeeper& operator=(const SnapshotKeeper&) = delete;

  /// Whether snapshot_every asks for a snapshot after `step`.
  bool due(int64_t step) const;
  /// Whether a save of kInterval is skipped now because the previous one is still being written;
  /// counts it.
  bool skips_if_busy();
  /// Counts the time for capturing a state as a stall of the save that follows.
  void count_capture(double seconds);
  /// Starts a save. The tensors must not change until before_update() returns. Returns false if it
  /// was skipped. A failed save is counted and logged; training continues with the last good one.
  bool save(const TrainingState& state, SaveReason reason);
  /// Whether save_to_memory() is wanted now: ram_snapshots is on, and, for a GPU (`on_device`),
  /// whose steps do not wait for digests, the last copy is complete.
  bool wants_memory_copy(bool on_device) const;
  /// The same to shared memory.
  void save_to_memory(const TrainingState& state);

  /// Blocks until the tensors may change; on a GPU, by work queued from now on. Throws FinalError
  /// if the state contains NaN or Inf: it was not saved, and no later state would be better. Throws
  /// SupersededError once a save has: another process continues the run.
  void before_update();

  /// Blocks until nothing is being written, with heartbeats for the launcher.
  void wait();

  /// The same from any thread, without heartbeats for the launcher. If all ranks had written their
  /// shards before they ended, publishes the index.
  void finish_writing();

  /// The progress of the save that is neither committed nor abandoned; kNone if there is none.
  ShardProgress shard_progress() const;
  /// Returns the error of a failed shard; "" otherwise.
  std::string shard_failure() const;
  /// Call once all shards of the last save are on disk. Rank 0 publishes their index in the
  /// background; other ranks forget the save.
  void commit();
  /// Call if a shard failed on some rank: rank 0 logs `why` and removes the other shards. If a disk
  /// was full, it deletes an older snapshot to make room for the next one.
  void give_up(const std::string& why, bool disk_was_full);
  bool shard_found_disk_full() const;
  /// Whether the state of `step` has been saved.
  bool has_saved(int64_t step) const;

  /// Returns the message for the user if the state of `step` cannot be saved at the end of the run.
  std::string unsaved_text(int64_t step) const;
  /// Blocks until this step's state is on disk, retrying once. Throws RunError if it cannot be
  /// saved; the last good snapshot is kept.
  void finish(const TrainingState& state);
  /// Blocks until the object store is up to date, at most `limit`, or until the next signal.
  void finish_sending(std::chrono::milliseconds limit);
  /// Drops the copies in memory. Call when the run is complete or was rolled back.
  void forget_memory();

  SaveCounts counts() const;

 private:
  /// A save whose state has been copied.
  struct Save {
    SnapshotMeta meta;
    SaveReason reason = SaveReason::kFixed;
    Clock::time_point begin;
    std::optional<ShardToSave> shard;
    std::shared_ptr<const StateBuffer> copy;
  };
  void write(const Save& save);
  void check_copied_state(const StateBuffer& copy);
  void write_file(const Save& save);
  void write_shard(const Save& save);
  void write_index(const Save& save);
  void ended(const Save& save, const std::string& failure);
  /// Stops saving; the training thread gets `error` at its next call.
  void stop_saving(const SupersededError& error);
  void fail_if_disk_is_full(const Save& save) const;
  std::optional<Save> take_uncommitted();
  void commit_if_complete();
  void say_saved(const SnapshotMeta& meta, SaveReason reason, Clock::time_point begin);
  void open_memory();
  /// Returns false, with a log line, if that is not possible.
  bool reserve_memory(const TrainingState& state);
  void begin_in_memory(const TrainingState& state);
  void finish_in_memory(const Metadata& metadata, const std::vector<StatePiece>& pieces);
  void memory_failed(const std::exception& error);
  void count_stall(double seconds);
  void wait_copied(BackgroundJob& job);

  const TrainerConfig& config_;
  SnapshotFolder& folder_;
  RemoteSnapshots* remote_;
  RunMonitor& monitor_;
  Log& log_;
  Resumed resumed_;
  std::optional<ShardRank> shard_rank_;
  std::function<void()> flush_records_;
  std::function<void()> published_;
  std::atomic<bool> keeps_memory_;

  std::shared_ptr<StateBuffer> buffer_;  // for states that are not copies
  std::unique_ptr<RamSnapshots> ram_;

  mutable std::mutex mutex_;  // guards the members below, shared with the jobs' threads
  SaveCounts counts_;
  int64_t saved_step_ = -1;
  int64_t last_saved_step_started_ = -1;
  double busy_seconds_ = 0.0;   // for the last save, in the background
  double stall_of_last_ = 0.0;  // by the last save so far
  double stall_of_next_ = 0.0;  // by its capture
  double cpu_of_last_ = 0.0;    // its thread's, if that takes a core from training
  std::size_t bytes_of_last_ = 0;
  bool computes_on_cpu_ = false;
  std::string non_finite_;  // name of the rejected tensor
  std::string superseded_;  // the reason why this process must stop saving
  std::optional<Save> uncommitted_;
  ShardProgress progress_ = ShardProgress::kNone;
  std::string shard_failure_;
  bool disk_was_full_ = false;
  Clock::time_point last_begin_ = Clock::now();

  std::optional<Clock::time_point> last_said_;  // for the writing thread only
  int64_t unsaid_ = 0;                          // saves since then

  BackgroundJob disk_job_;  // last: their threads end before the members above do
  BackgroundJob memory_job_;
};

/// The fault `corrupt`: flips a bit in a correctly written file, as a bad disk might.
void flip_last_bit(const std::string& path);

}  // namespace ddp::train
