// The training state and what one step does to it: model, optimizer, scaler, position in the data.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trainer/data/data_loader.h"
#include "trainer/data/distributed_sampler.h"
#include "trainer/health/run_monitor.h"
#include "trainer/optim/amp.h"
#include "trainer/optim/optimizer.h"
#include "trainer/optim/schedule.h"
#include "trainer/optim/weight_average.h"
#include "trainer/parallel/mesh/mesh.h"
#include "trainer/run/batch_plan.h"
#include "trainer/run/early_stopping.h"
#include "trainer/run/state/replica_check.h"
#include "trainer/run/step_guard.h"
#include "trainer/run/strategy/parallel_strategy.h"
#include "trainer/snapshot/snapshot.h"
#include "trainer/snapshot/snapshot_keeper.h"
#include "trainer/task/evaluator.h"
#include "trainer/task/task.h"

namespace ddp::train {

struct Config;

/// What one optimizer step leaves behind, still on the device: reading it is a host sync that only
/// log steps pay.
struct StepOutput {
  /// One for each micro-batch of this rank, without graphs.
  std::vector<MicroBatchLoss> losses;
  torch::Tensor grad_norm;   ///< Before clipping.
  torch::Tensor not_finite;  ///< 1: the gradients held NaN or Inf, there was no update.
  bool spike = false;        ///< There was no update.
  double learning_rate = 0.0;
  bool abandoned = false;  ///< Between micro-batches: the state is as before the step.
};

/// Knows nothing of files, signals and the log; TrainingRun does.
class Trainer {
 public:
  /// Builds model and optimizer, loads `snapshot` (rank 0 holds the file, others may hold the same;
  /// `meta` is on every rank) and gives all ranks rank 0's values. Throws UserError for a snapshot
  /// of another model.
  Trainer(const Config& config, const DevicePlan& plan, Mesh& mesh, Task& task,
          const std::optional<SnapshotMeta>& meta, const OpenedSnapshot* snapshot);

  /// Goes back to a snapshot of this run. On all ranks.
  void restore(const SnapshotMeta& meta, const OpenedSnapshot* snapshot);

  /// Forward, backward, all-reduce, clip, update; no host sync unless spikes are watched for.
  /// Gradients that are not finite change nothing. `before_update` runs when the state is about to
  /// change. `gives_up`, which answers alike on all ranks: see StepContext. A step that is
  /// abandoned changes only the loader.
  StepOutput train_step(DataLoader& loader, RunMonitor& monitor,
                        const std::function<void()>& before_update,
                        const std::function<bool()>& gives_up = {});
  /// Counts the next step as made and passes over its samples.
  void leave_out_step(DataLoader& loader);

  /// With the averaged weights where there are any. Nothing when `go_on` said no on any rank, or
  /// when there is nothing to evaluate on. `before_wait`: before the ranks wait for each other.
  std::optional<Evaluation> evaluate_now(const std::function<bool()>& go_on,
                                         const std::function<void()>& before_wait);

  /// Task::prepare().
  void prepare_task(const std::function<void()>& alive);

  /// The metrics of the task's test set, in the same way; they decide nothing. Nothing when there
  /// is none.
  std::optional<Evaluation> test_now(const std::function<bool()>& go_on,
                                     const std::function<void()>& before_wait);

  /// What the task makes up at this step, with the averaged weights where there are any: the same
  /// whatever came before, and training continues as without it. For rank 0, or for all where they
  /// hold shards, of which the others get nothing.
  std::optional<std::string> sample(const std::function<bool()>& go_on);

  /// See LossWeights::step_loss(). A collective of all ranks.
  double global_mean_loss(const StepOutput& output) const {
    return strategy_->step_loss(output.losses);
  }

  /// Whether ranks hold different parts of the training state: capture(), sample() and gradients()
  /// are collectives then.
  bool holds_shards() const { return strategy_->state().is_divided(); }

  /// Returns the state as the next step will find it, for rank 0 to save. Changes nothing: neither
  /// the state nor the default generators.
  TrainingState capture() const;
  /// The same for each rank to save a shard of it. A collective. Its ShardId knows no attempt yet.
  TrainingState capture_shard();

  /// The last step's gradients, named like their parameters; on rank 0.
  std::vector<NamedTensor> gradients() const;
  /// "model.*", of the whole model; on rank 0.
  std::vector<NamedTensor> whole_weights() const {
    return strategy_->state().gather(strategy_->weights());
  }

  /// Where the ranks' training states differ; they must not. A collective; `before_wait` as in
  /// find_difference().
  std::optional<ReplicaDifference> compare_replicas(const std::function<void()>& before_wait);

  std::unique_ptr<DataLoader> make_loader() const;

  /// Only for its texts and times.
  ParallelStrategy& strategy() const { return *strategy_; }

  int64_t step() const { return step_; }
  /// See steps_of_run(): the same at every step, and after a resume.
  int64_t steps_in_all() const;
  const DataCursor& cursor() const { return cursor_; }
  const DistributedSampler& sampler() const { return sampler_; }
  const Schedule& schedule() const { return *schedule_; }
  Task& task() const { return task_; }
  const GradScaler& scaler() const { return scaler_; }
  const BatchPlan& batch_plan() const { return batch_plan_; }
  const DevicePlan& device_plan() const { return plan_; }
  StepGuard& guard() { return guard_; }
  const EarlyStopping& early_stopping() const { return early_stopping_; }
  const std::optional<EvalRecord>& last_eval() const { return last_eval_; }
  const std::optional<EvalRecord>& best_eval() const { return best_eval_; }
  /// The parameters for which the last snapshot that was loaded has no state of the optimizer.
  const std::set<std::string>& without_state() const { return without_state_; }
  bool evaluation_due() const { return evaluation_due_; }
  void set_evaluation_due(bool due) { evaluation_due_ = due; }

 private:
  std::optional<Evaluation> evaluate_on(const SampleSource& samples,
                                        std::optional<int64_t> most_batches,
                                        const std::function<bool()>& go_on,
                                        const std::function<void()>& before_wait);
  /// Model and optimizer: the tensors that a snapshot holds and that all ranks share.
  std::vector<NamedTensor> state() const;
  SnapshotMeta capture_meta() const;
  NamedTensor generator_state() const;
  void load(const SnapshotMeta& meta, const OpenedSnapshot* snapshot);
  /// `before`: the configuration of the snapshot's run. Whether its snapshots need not have this
  /// tensor of the training state.
  bool is_optional(const Config& before, const std::string& tensor) const;
  /// Model, optimizer and averages as the snapshot has them: each rank's part. A collective.
  void load_tensors(const Config& before, const OpenedSnapshot* snapshot);
  void swap_averages();
  void update(StepOutput& output, const FaultPlan& faults);
  /// Decides whether the update may take effect: sets `not_finite` and `spike`. Changes nothing but
  /// the guard's history.
  void judge(StepOutput& output, const std::optional<torch::Tensor>& found_inf);
  /// Updates weights, averages and the model's buffers, unless the step was judged bad.
  void apply(StepOutput& output);
  void update_weights(const StepOutput& output);

  const Config& config_;
  const DevicePlan plan_;
  Mesh& mesh_;
  Task& task_;
  const std::string config_json_;
  const BatchPlan batch_plan_;

  const std::unique_ptr<ParallelStrategy> strategy_;
  const std::unique_ptr<Optimizer> optimizer_;  // of what the strategy has this rank update
  GradScaler scaler_;
  DistributedSampler sampler_;
  std::optional<Schedule> schedule_;  // of all steps, known once a snapshot is loaded
  StepGuard guard_;
  WeightAverage average_;
  EarlyStopping early_stopping_;

  int64_t step_ = 0;
  DataCursor cursor_;
  std::optional<EvalRecord> last_eval_;
  std::optional<EvalRecord> best_eval_;
  bool evaluation_due_ = false;
  std::set<std::string> without_state_;
};

}  // namespace ddp::train
