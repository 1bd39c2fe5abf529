// Saves the training state without holding training up: copies it while the next step computes,
// writes it on a thread of its own, and goes on when that fails.
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
#include "trainer/runtime/background_job.h"
#include "trainer/runtime/log.h"
#include "trainer/snapshot/ram_snapshots.h"
#include "trainer/snapshot/remote_snapshots.h"
#include "trainer/snapshot/snapshot_folder.h"
#include "trainer/snapshot/state_buffer.h"

namespace ddp::train {

/// What saving has cost and achieved so far.
struct SaveCounts {
  int64_t saved = 0;
  int64_t failed = 0;
  int64_t skipped = 0;         ///< Due while the one before was still being written.
  int64_t in_memory = 0;       ///< Copies in shared memory.
  double stall_seconds = 0.0;  ///< Wall time for which saves held up the training thread.
  double longest_stall = 0.0;  ///< Of one save.
};

enum class SaveReason {
  kInterval,  ///< snapshot_every: left out as snapshot_if_busy says; an automatic one is quiet.
  kFixed      ///< save_every, save_every_steps, the end: never left out, always said in the log.
};

/// What is to be saved: the tensors as they are, until the next before_update().
struct TrainingState {
  SnapshotMeta meta;
  NamedTensors tensors;
  ReadyEvent ready;
};

/// Lives on global rank 0 alone. All functions are for the training thread.
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
  /// Begins to save. The tensors must stay as they are until before_update() has returned. False
  /// when it was skipped. A save that fails is counted and said in the log; training goes on with
  /// the last good one.
  bool save(const TrainingState& state, SaveReason reason);
  /// The same into shared memory, where ram_snapshots asks for it.
  void save_to_memory(const TrainingState& state);
  bool keeps_memory() const { return keeps_memory_; }

  /// Returns when the tensors may change. Throws FinalError when the state holds NaN or Inf: it was
  /// not saved, and no later one would be better.
  void before_update();

  /// Returns when nothing is being written.
  void wait() { wait_with_heartbeats(); }

  /// Waits until `state`, or the same step's, is on the disk; tries once more where the last
  /// attempt failed. Throws RunError when it cannot be saved: a good snapshot is still there.
  void finish(const TrainingState& state);
  /// Waits until an object store has what it is to have: at most `limit`, and after a signal that
  /// comes meanwhile no longer.
  void finish_sending(std::chrono::milliseconds limit);
  /// The run is complete or has gone back: the copies in memory are of no use any more.
  void forget_memory();

  SaveCounts counts() const;

 private:
  void write(const SnapshotMeta& meta, SaveReason reason, Clock::time_point begin);
  void say_saved(const SnapshotMeta& meta, SaveReason reason, Clock::time_point begin);
  void store_in_memory(const TrainingState& state);
  void count_stall(double seconds);
  void wait_with_heartbeats();

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
  Clock::time_point last_begin_ = Clock::now();

  std::optional<Clock::time_point> last_said_;  // of the thread that writes alone
  int64_t unsaid_ = 0;                          // saved since

  BackgroundJob disk_job_;  // last: their threads end before the members above do
  BackgroundJob memory_job_;
};

}  // namespace ddp::train
