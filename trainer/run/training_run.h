// The run around the training steps: stop signals, evaluations, snapshots, bad numbers, log and
// account.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/health/run_monitor.h"
#include "trainer/metrics/run_records.h"
#include "trainer/metrics/throughput.h"
#include "trainer/parallel/collectives/process_group.h"
#include "trainer/run/duty.h"
#include "trainer/run/run_account.h"
#include "trainer/run/step_profile.h"
#include "trainer/run/trainer.h"
#include "trainer/runtime/log/log.h"
#include "trainer/snapshot/snapshot_folder.h"
#include "trainer/snapshot/snapshot_keeper.h"

namespace ddp::train {

struct Config;

/// How fit() ended.
struct FitResult {
  int stop_signal = 0;  ///< The signal that requested the stop; 0: training is complete.
  std::optional<double> train_loss;  ///< At the last step; nullopt if there was nothing to train.
  std::optional<double> eval_loss;   ///< At the last evaluation, or at the best one if that is
                                     ///< what the run ends with.
};

class TrainingRun {
 public:
  /// `folder` holds the snapshots and is used on rank 0, as is `remote` (null: no other place), or
  /// by all ranks if each of them saves a shard (`sharded`). `resumed_from`: the file that
  /// `trainer` was loaded from on rank 0, or "". All must outlive it.
  TrainingRun(const Config& config, ProcessGroup& group, Trainer& trainer, SnapshotFolder& folder,
              RemoteSnapshots* remote, RunMonitor& monitor, Log& log,
              const std::string& resumed_from, bool sharded);

  /// Trains up to max_epochs or max_steps, or until a stop signal on any rank; always
  /// saves the last step. Throws RunError if that fails, or if a bad step has to end the
  /// run.
  FitResult fit();

  /// Blocks until no snapshot is being written. May be called from any thread.
  void finish_writing() {
    if (keeper_) keeper_->finish_writing();
  }

 private:
  bool finished() const;
  FitResult nothing_to_train();
  void check_last(const FitResult& result) const;
  FitResult result() const;
  void train_until_end();
  void train_until_limit();
  /// Returns false if the step was abandoned, as a stop signal could not wait for its end.
  bool one_step();
  bool gives_up_step();
  /// How long a step may last after a stop signal.
  static std::chrono::milliseconds stop_patience();
  void step_done();
  void say_warnings();
  /// A step whose numbers have not been checked yet.
  struct PendingCheck {
    int64_t step = 0;
    DataCursor at;  ///< The position of its first sample.
    StepOutput output;
    HostCopy not_finite;
  };
  void defer_check(StepOutput output, const DataCursor& at);
  void judge_last();
  bool last_looks_good() const;
  static bool is_suspect(const PendingCheck& step);
  /// A collective. Throws GroupError if the ranks differ.
  bool all_suspect(const PendingCheck& step);
  StepVerdict judge(const PendingCheck& step);
  void count_overflow(int64_t step);
  void handle_bad_step(StepVerdict verdict, const PendingCheck& bad);
  bool roll_back(int64_t bad_step);
  void after_step(bool epoch_ended);
  std::vector<Duty> duties();
  Duty evaluation();
  void perform(const Duty& duty, const StepEnd& end);
  void check_replicas();
  bool snapshot_due(const StepEnd& end);
  bool fixed_snapshot_due(const StepEnd& end) const;
  bool known_snapshot_due(const StepEnd& end) const;
  void take_snapshot(const StepEnd& end);
  void run_evaluation();
  /// `is_new`: no earlier job has recorded it.
  void run_test(bool is_new);
  void go_to_best();
  /// Whether all ranks take part in each save.
  bool saves_together() const { return sharded_ || trainer_.holds_shards(); }
  /// What the ranks exchange in each step.
  std::vector<int64_t> step_votes(int64_t step);
  void send_votes(int64_t step);
  void apply_votes(const std::vector<int64_t>& votes);
  void decide_on_shards(bool all_written, bool failed);
  void settle_shards();
  bool is_saved_everywhere();
  void save_last_shards();
  void take_sharded_snapshot(bool fixed);
  std::string stem_for_shards(int64_t step);
  bool wants_memory_copy() const;
  TrainingState capture();
  void save(const TrainingState& state, SaveReason reason);
  bool last_state_is_saved();
  void save_last();
  std::chrono::milliseconds time_to_send() const;
  void log_time_breakdown();
  void log_start() const;
  void log_step(const StepOutput& output, int64_t epoch);
  void log_skew(const std::vector<double>& seconds);
  void record_evaluation(const char* split, const Evaluation& evaluation);
  void log_test(const Evaluation& evaluation, bool is_new);
  void log_evaluation(const Evaluation& evaluation, bool made_before);
  PeakMemory gather_peak_memory();
  void log_end(const PeakMemory& peak_memory);
  void end_account(const PeakMemory& peak_memory);
  void write_unfinished_account() const;
  void record_step(const StepOutput& output, const Metrics& metrics, double grad_norm, double rate);
  void record_histograms();
  void record_sample();
  template <typename Work>
  void profiling(const Work& work);
  RunFacts facts() const;
  std::string summary_file() const;
  double epochs_done() const;
  std::string samples_of(const DataCursor& at) const;

  const Config& config_;
  ProcessGroup& group_;
  Trainer& trainer_;
  SnapshotFolder& folder_;
  RunMonitor& monitor_;
  Log& log_;
  const bool sharded_;  // each rank saves a shard

  std::unique_ptr<RunRecords> records_;  // these three: rank 0 alone
  std::unique_ptr<RunAccount> account_;
  std::unique_ptr<SnapshotKeeper> keeper_;  // its thread flushes the records, writes the account
  std::unique_ptr<DataLoader> loader_;
  StepProfile profile_;
  const std::vector<Duty> duties_;
  int64_t first_step_;
  int64_t saved_step_ = -1;
  int64_t rolled_back_to_ = -1;  // a step of which only the snapshot is made again
  bool before_first_snapshot_ = true;
  int stop_signal_ = 0;
  std::optional<ProcessGroup::PendingMax> votes_;  // in this step
  bool steps_are_long_ = true;                     // or unknown so far; the same on all ranks
  bool snapshot_wished_ = false;     // by rank 0, before the last step; known to all that save
  bool memory_copy_wished_ = false;  // by all of them, likewise
  bool shards_pending_ = false;      // shards neither committed nor given up yet
  std::optional<PendingCheck> pending_check_;
  RollbackLimit rollback_limit_;
  int64_t overflows_ = 0;      // in a row
  int64_t all_overflows_ = 0;  // in this process
  double last_loss_ = 0.0;     // the last logged one
  int64_t last_loss_step_ = 0;
  double before_backward_ = 0.0;  // seconds since the last log line, this rank's
  int64_t steps_since_log_ = 0;
  Throughput throughput_;
};

}  // namespace ddp::train
