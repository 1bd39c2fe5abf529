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

#include "trainer/config/config.h"
#include "trainer/health/run_monitor.h"
#include "trainer/runtime/log/log.h"
#include "trainer/runtime/process/background_job.h"
#include "trainer/snapshot/ram_snapshots.h"
#include "trainer/snapshot/remote_snapshots.h"
#include "trainer/snapshot/snapshot_folder.h"
#include "trainer/snapshot/state_buffer.h"

namespace ddp::train {

/// What saving has cost and achieved so far.
struct SaveCounts {
  int64_t saved = 0;
  int64_t failed = 0;
  int64_t skipped = 0;         ///< Due while the previous one was still being written.
  int64_t in_memory = 0;       ///< Copies in shared memory.
  double stall_seconds = 0.0;  ///< Wall time for which saves stalled the training thread.
  double longest_stall = 0.0;  ///< Of one save.
};

enum class SaveReason {
  kInterval,  ///< snapshot_every: left out as snapshot_if_busy says; an automatic one is quiet.
  kFixed      ///< save_every, save_every_steps, the end: never left out, always said in the log.
};

/// The state to save: the tensors as they are until the next before_update().
struct TrainingState {
  SnapshotMeta meta;
  NamedTensors tensors;
  ReadyEvent ready;
};

/// Lives on global rank 0 only. Call from the training thread only.
class SnapshotKeeper {
 public:
  using Clock = std::chrono::steady_clock;

  /// All references outlive it. `remote` may be null. `resumed_from`: file that the run goes on
  /// from, or "". `flush_records`: what the run has recorded up to a snapshot is in its files; on
  /// the thread that publishes it, before.
  SnapshotKeeper(
      const TrainerConfig& config, SnapshotFolder& folder, RemoteSnapshots* remote,
      RunMonitor& monitor, Log& log, std::string resumed_from,
      std::function<void()> flush_records = [] {});
  /// Finishes what is being written.
  ~SnapshotKeeper();
  SnapshotKeeper(const SnapshotKeeper&) = delete;
  SnapshotKeeper& operator=(const SnapshotKeeper&) = delete;

  /// Whether snapshot_every asks for a snapshot after `step`.
  bool due(int64_t step) const;
  /// Starts a save. The tensors must not change until before_update() returns. False if it was
  /// skipped. A failed save is counted and logged; training continues with the last good one.
  bool save(const TrainingState& state, SaveReason reason);
  /// Whether save_to_memory() is wanted now: ram_snapshots is on, and, for a GPU (`on_device`),
  /// whose steps do not wait for digests, the last copy is complete.
  bool wants_memory_copy(bool on_device) const;
  /// The same to shared memory.
  void save_to_memory(const TrainingState& state);

  /// Returns once the tensors may change: on a GPU, by what is queued from now on. Throws
  /// FinalError if the state contains NaN or Inf: it was not saved, and no later state would be
  /// better. Throws SupersededError once a save has: another process continues the run.
  void before_update();

  /// Returns when nothing is being written.
  void wait() { wait_with_heartbeats(); }

  /// The same from any thread, without a sign of life for the launcher.
  void finish_writing();

  /// Waits until this step's state is on disk, retrying once. Throws RunError if it cannot be
  /// saved; the last good snapshot is kept.
  void finish(const TrainingState& state);
  /// Waits until the object store is up to date, at most `limit`, or until the next signal.
  void finish_sending(std::chrono::milliseconds limit);
  /// The run is complete or was rolled back: drop the copies in memory.
  void forget_memory();

  SaveCounts counts() const;

 private:
  void write(const SnapshotMeta& meta, SaveReason reason, Clock::time_point begin);
  void say_saved(const SnapshotMeta& meta, SaveReason reason, Clock::time_point begin);
  void begin_in_memory(const TrainingState& state);
  void finish_in_memory(const SnapshotMeta& meta);
  void memory_failed(const std::exception& error);
  void count_stall(double seconds);
  void wait_with_heartbeats();
  void wait_copied(BackgroundJob& job);

  const TrainerConfig& config_;
  SnapshotFolder& folder_;
  RemoteSnapshots* remote_;
  RunMonitor& monitor_;
  Log& log_;
  std::string resumed_from_;
  std::function<void()> flush_records_;
  std::atomic<bool> keeps_memory_;

  std::unique_ptr<StateBuffer> buffer_;
  std::unique_ptr<RamSnapshots> ram_;

  mutable std::mutex mutex_;  // what follows is shared with the threads of the jobs
  SaveCounts counts_;
  int64_t saved_step_ = -1;
  int64_t last_saved_step_started_ = -1;
  double busy_seconds_ = 0.0;   // of the last save, in the background
  double stall_of_last_ = 0.0;  // of the last save so far
  double cpu_of_last_ = 0.0;    // of its thread, where that takes a core from training
  std::size_t bytes_of_last_ = 0;
  bool computes_on_cpu_ = false;
  std::string non_finite_;  // the tensor that was refused
  std::string superseded_;  // why this process must not save any more
  Clock::time_point last_begin_ = Clock::now();

  std::optional<Clock::time_point> last_said_;  // of the thread that writes alone
  int64_t unsaid_ = 0;                          // saved since

  BackgroundJob disk_job_;  // last: their threads end before the members above do
  BackgroundJob memory_job_;
};

}  // namespace ddp::train
