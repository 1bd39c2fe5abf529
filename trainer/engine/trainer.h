// The training run: resume, steps, evaluation, snapshots, the end.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/data/char_dataset.h"
#include "trainer/data/data_loader.h"
#include "trainer/data/distributed_sampler.h"
#include "trainer/distributed/ddp.h"
#include "trainer/distributed/process_group.h"
#include "trainer/engine/evaluator.h"
#include "trainer/engine/snapshot.h"
#include "trainer/metrics/throughput.h"
#include "trainer/model/gpt.h"
#include "trainer/optim/adamw.h"
#include "trainer/optim/amp.h"
#include "trainer/runtime/log.h"

namespace ddp::train {

/// What one optimizer step leaves behind, still on the device: reading it is a host sync that only
/// log steps pay.
struct StepOutput {
  std::vector<torch::Tensor> losses;  ///< One float32 scalar for each micro-batch of this rank.
  torch::Tensor grad_norm;            ///< Before clipping.
  std::optional<torch::Tensor> found_inf;  ///< 1: GradScaler skipped the update.
};

/// How fit() ended.
struct FitResult {
  int stop_signal = 0;  ///< Signal that asked for the stop, 0 when training is complete.
  std::optional<double> train_loss;  ///< Of the last step; none when there was none to train.
  std::optional<double> eval_loss;   ///< Of the last evaluation.
};

class Trainer {
 public:
  /// Builds model and optimizer, loads `snapshot` (rank 0 holds the file; `meta` is on every rank)
  /// and wraps the model in DistributedDataParallel, which copies rank 0's values to all. Throws
  /// UserError for a snapshot of another model.
  Trainer(const Config& config, const DevicePlan& plan, ProcessGroup& group,
          const CharDataset& dataset, Log& log, const std::optional<SnapshotMeta>& meta,
          const OpenedSnapshot* snapshot);

  /// Trains to the end of max_epochs or max_steps, or until a stop signal on any rank; the last
  /// step is always saved.
  FitResult fit();

  /// Forward, backward, all-reduce, clip, update. No host sync.
  StepOutput train_step();

  int64_t step() const { return step_; }

 private:
  void restore(const SnapshotMeta& meta, const OpenedSnapshot* snapshot);
  void broadcast_optimizer();
  void warm_up_ddp();
  void log_start() const;
  void log_step(const StepOutput& output, int64_t epoch);
  void log_end(const FitResult& result) const;
  double global_mean_loss(const std::vector<torch::Tensor>& losses);
  bool finished() const;
  void after_step(bool epoch_ended);
  void run_evaluation();
  void save();
  NamedTensors snapshot_tensors();
  SnapshotMeta snapshot_meta() const;

  const Config& config_;
  const DevicePlan plan_;
  ProcessGroup& group_;
  const CharDataset& dataset_;
  Log& log_;

  GPT model_;
  std::optional<torch::ScalarType> amp_dtype_;
  AdamW optimizer_;
  GradScaler scaler_;
  std::unique_ptr<DistributedDataParallel> ddp_;
  DistributedSampler sampler_;
  std::unique_ptr<DataLoader> loader_;

  int64_t step_ = 0;
  DataCursor cursor_;
  int64_t first_step_ = 0;
  bool keep_previous_ = true;  // false until the first save after a fallback
  int64_t saved_step_ = -1;
  int64_t evaluated_step_ = -1;
  std::optional<EvalResult> last_eval_;
  double last_loss_ = 0.0;
  Throughput throughput_;
};

}  // namespace ddp::train
