// The training state and what one step does to it: model, optimizer, scaler, position in the data.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/data/data_loader.h"
#include "trainer/data/distributed_sampler.h"
#include "trainer/health/run_monitor.h"
#include "trainer/model/ops/weight_copies.h"
#include "trainer/optim/amp.h"
#include "trainer/optim/optimizer.h"
#include "trainer/optim/schedule.h"
#include "trainer/optim/weight_average.h"
#include "trainer/parallel/mesh/mesh.h"
#include "trainer/parallel/strategy/gradient_sync.h"
#include "trainer/parallel/strategy/pipeline_executor.h"
#include "trainer/run/batch_plan.h"
#include "trainer/run/early_stopping.h"
#include "trainer/run/loss_weights.h"
#include "trainer/run/micro_batch_graphs.h"
#include "trainer/run/model_norm.h"
#include "trainer/run/partial_gradients.h"
#include "trainer/run/state/distributed_state.h"
#include "trainer/run/state/replica_check.h"
#include "trainer/run/step_guard.h"
#include "trainer/snapshot/snapshot.h"
#include "trainer/snapshot/snapshot_keeper.h"
#include "trainer/task/evaluator.h"
#include "trainer/task/task.h"

namespace ddp::train {

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
  /// change. `gives_up` is asked between two micro-batches, as often on every rank, though not
  /// between stages of a pipeline, and answers alike on all of them: true abandons the step. Only
  /// the loader is changed then.
  StepOutput train_step(DataLoader& loader, RunMonitor& monitor,
                        const std::function<void()>& before_update,
                        const std::function<bool()>& gives_up = {});
  /// Counts the next step as made and passes over its samples.
  void leave_out_step(DataLoader& loader);

  /// With the averaged weights where there are any. Nothing when `go_on` said no on any rank, or
  /// when there is nothing to evaluate on. `before_wait`: before the ranks wait for each other.
  std::optional<Evaluation> evaluate_now(const std::function<bool()>& go_on,
                                         const std::function<void()>& before_wait);

  /// The metrics of the task's test set, in the same way; they decide nothing. Nothing when there
  /// is none.
  std::optional<Evaluation> test_now(const std::function<bool()>& go_on,
                                     const std::function<void()>& before_wait);

  /// What the task makes up at this step, with the averaged weights where there are any: the same
  /// whatever came before, and training continues as without it. For rank 0, or for all where they
  /// hold shards, of which the others get nothing.
  std::optional<std::string> sample(const std::function<bool()>& go_on);

  /// See LossWeights::step_loss(). A collective of all ranks.
  double global_mean_loss(const StepOutput& output) const;

  /// Whether ranks hold different parts of the training state: capture(), sample() and gradients()
  /// are collectives then.
  bool holds_shards() const { return state_layout_.is_divided(); }
  /// "2 stages, 1f1b, 8 micro-batches; ..."; empty without stages.
  std::string pipeline_text() const;
  /// Elements of the trained parameters that this rank updates.
  int64_t updated_elements() const;

  /// Returns the state as the next step will find it, for rank 0 to save. Changes nothing: neither
  /// the state nor the default generators.
  TrainingState capture() const;
  /// The same for each rank to save a shard of it. A collective. Its ShardId knows no attempt yet.
  TrainingState capture_shard();

  /// The last step's gradients, named like their parameters; on rank 0.
  std::vector<NamedTensor> gradients() const;
  /// "model.*", of the whole model; on rank 0.
  std::vector<NamedTensor> whole_weights() const;

  /// Where the ranks' training states differ; they must not. A collective; `before_wait` as in
  /// find_difference().
  std::optional<ReplicaDifference> compare_replicas(const std::function<void()>& before_wait = [] {
  });

  /// What there is to say of CUDA graphs since the last call.
  std::optional<MicroBatchGraphs::Note> take_graphs_note() { return graphs_.take_note(); }

  /// How gradients are communicated; see GradientSync.
  GradientSync& sync() { return *sync_; }

  std::unique_ptr<DataLoader> make_loader() const;

  int64_t step() const { return step_; }
  const DataCursor& cursor() const { return cursor_; }
  const DistributedSampler& sampler() const { return sampler_; }
  const Schedule& schedule() const { return schedule_; }
  Task& task() const { return task_; }
  const GradScaler& scaler() const { return scaler_; }
  const BatchPlan& batch_plan() const { return batch_plan_; }
  const DevicePlan& device_plan() const { return plan_; }
  std::optional<torch::ScalarType> amp_dtype() const { return amp_dtype_; }
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
  /// "model.*", as this rank holds them.
  std::vector<NamedTensor> weights() const;
  /// Whether no rank has all weights, so that every pass of the model is a collective.
  bool divides_weights() const;
  void combine_found_inf(torch::Tensor& found_inf);
  /// Whether `go_on` returned true on all ranks, all of which call it.
  std::function<bool()> agreed(const std::function<bool()>& go_on);
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
  /// The averages are the weights from here on.
  void restart_averages();
  /// Divides the parameters between the ranks if the strategy does. Returns those that this
  /// rank updates.
  TrainedParameters divide(TrainedParameters trained, FirstValues values);
  void swap_averages();
  MicroBatchLoss run_micro_batch(DataLoader& loader, RunMonitor& monitor, int64_t micro, bool last);
  MicroBatchLoss run_graph(const Batch& batch, RunMonitor& monitor, int64_t micro);
  torch::Tensor mean_loss(const Batch& batch);
  /// Once a step.
  void zero_gradients();
  /// All passes of a step, in one copy of the model on one rank or through the stages of one.
  std::optional<std::vector<MicroBatchLoss>> run_micro_batches(
      DataLoader& loader, RunMonitor& monitor, const std::function<bool()>& gives_up);
  class PipelinedStep;
  void make_pipeline();
  std::vector<MicroBatchLoss> run_pipeline(DataLoader& loader, RunMonitor& monitor);
  /// `losses` with the means that the last stage has. A collective of the stages.
  std::vector<MicroBatchLoss> of_last_stage(std::vector<MicroBatchLoss> losses) const;
  /// The last stage gets the table of a tied head as it is now on the first one.
  void share_table();
  uint64_t dropout_seed_of(int64_t micro) const;
  void seed_dropout(int64_t micro);
  void update(StepOutput& output, const FaultPlan& faults);
  /// Unscales, measures and clips the gradients. Returns the scaler's found_inf, if it is enabled.
  std::optional<torch::Tensor> finish_gradients(StepOutput& output, const FaultPlan& faults);
  /// Decides whether the update may take effect: sets `not_finite` and `spike`. Changes nothing but
  /// the guard's history.
  void judge(StepOutput& output, const std::optional<torch::Tensor>& found_inf);
  /// Updates weights, averages and the model's buffers, unless the step was judged bad.
  void apply(StepOutput& output);
  /// With their bfloat16 copies, if the optimizer can.
  void update_weights(const StepOutput& output);

  const Config& config_;
  const DevicePlan plan_;
  Mesh& mesh_;
  ProcessGroup& world_;
  ProcessGroup& data_;  // the ranks that hold the same part of the model
  Task& task_;
  const std::string config_json_;
  const BatchPlan batch_plan_;
  const int64_t own_micro_batches_;
  const int averaged_over_;  // see LossWeights
  const LossWeights loss_weights_;

  std::optional<torch::ScalarType> amp_dtype_;
  WeightCopies weight_copies_;
  std::unique_ptr<GradientSync> sync_;
  ShardedDataParallel* shards_ = nullptr;  // sync_, where ranks hold shards
  std::unique_ptr<Optimizer> optimizer_;
  DistributedState state_layout_;
  std::unique_ptr<ModelNorm> model_norm_;                // where a model is divided between ranks
  std::unique_ptr<PartialGradients> partial_gradients_;  // where ranks also hold shards
  std::unique_ptr<StageLinks> stage_links_;              // these two: where it is cut into stages
  std::unique_ptr<PipelineExecutor> pipeline_;
  MicroBatchGraphs graphs_;
  bool gradients_are_ready_ = false;  // to be added to
  GradScaler scaler_;
  DistributedSampler sampler_;
  Schedule schedule_;
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
