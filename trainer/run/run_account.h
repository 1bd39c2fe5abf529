// Accounts for a job's time: useful steps, repeated steps, restarts and their durations, snapshots
// and their cost.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/health/step_times.h"
#include "trainer/runtime/files/descriptor.h"
#include "trainer/snapshot/snapshot_keeper.h"

namespace ddp::train {

/// One restart of the group. Times in seconds; nullopt if not measured.
struct RestartRecord {
  int rank = -1;                        ///< The one that failed first, from ddp-run; -1: unknown.
  std::string cause;                    ///< "SIGKILL", "hang", "nodes joined or left"; "": unknown.
  int64_t lost_steps = 0;               ///< Finished before the failure, to be repeated.
  std::optional<double> to_detect;      ///< From the last sign of progress to detection by ddp-run.
  std::optional<double> to_restart;     ///< From there to the start of this process.
  std::optional<double> to_first_step;  ///< From there to the end of the first new step.
};

/// Peak memory of each rank, bytes.
struct PeakMemory {
  std::vector<double> host{};
  std::vector<double> device{};  ///< For tensors on GPUs; empty on CPUs.
};

/// Further facts known at the end of a run.
struct RunEnding {
  std::string outcome;  ///< "finished", "preempted", "unfinished": still runs, or died
  std::vector<std::pair<std::string, double>> start_parts{};  ///< Seconds, of this attempt's start.
  PeakMemory peak_memory{};
};

/// The jobs that trained the run before this one continued it, as far as write_json() wrote.
struct EarlierJobs {
  int64_t jobs = 0;
  double seconds = 0.0;
  double useful_seconds = 0.0;  ///< Goodput x seconds.
  int64_t restarts = 0;         ///< By ddp-run.
};

/// Kept by global rank 0. Survives a restart by ddp-run in the folder DDP_SHM_DIR; without one it
/// covers this process only.
class RunAccount {
 public:
  /// Reads the records of the job's earlier attempts, DDP_LAST_FAILURE and, for a continued run,
  /// `summary`, the file that write_json() wrote for the previous job.
  RunAccount(const std::string& snapshot_path, int64_t resumed_step,
             const std::string& summary = "");
  ~RunAccount();
  RunAccount(const RunAccount&) = delete;
  RunAccount& operator=(const RunAccount&) = delete;

  /// Call after each optimizer step. Costs one small write.
  void step_done(int64_t step, const SaveCounts& saves);

  /// Whether the previous job, or an earlier attempt, came to the end of the run.
  bool was_finished() const { return was_finished_; }

  /// Call after the last save, which follows the last step.
  void count_saves(const SaveCounts& saves) { own_saves_ = saves; }

  /// Returns useful steps x median step / wall time since the first attempt began, from 0 to 1;
  /// nullopt before two steps are done.
  std::optional<double> goodput() const;
  /// Returns a few lines of text for the log.
  std::vector<std::string> text() const;
  /// The same as JSON. Throws RunError. Any thread.
  void write_json(const std::string& path, const RunEnding& ending) const;

 private:
  struct Totals {
    double job_began = 0.0;     ///< Unix seconds.
    int64_t first_step = 0;     ///< First step of the first attempt.
    int64_t last_step = 0;      ///< Finished.
    double last_step_at = 0.0;  ///< Unix seconds.
    double median_step = 0.0;   ///< Seconds; the previous attempt's until this one has its own.
    int64_t redone_steps = 0;
    SaveCounts saves;  ///< Earlier attempts' saves.
    std::vector<RestartRecord> restarts;
  };
  void read_earlier_attempts(int64_t resumed_step);
  void add_restart(int64_t resumed_step);
  void read_earlier_jobs(const std::string& summary);
  void write_totals();
  double median_step() const;
  std::string totals_json() const;
  std::string summary_json(const RunEnding& ending) const;
  SaveCounts all_saves() const;

  mutable std::mutex mutex_;  // what step_done() changes and write_json() reads
  Totals totals_;
  EarlierJobs earlier_;
  bool was_finished_ = false;
  SaveCounts own_saves_;
  StepTimes times_;
  double began_ = 0.0;  // this attempt of this job, Unix seconds
  std::optional<double> previous_step_at_;
  Descriptor fd_;
};

}  // namespace ddp::train
