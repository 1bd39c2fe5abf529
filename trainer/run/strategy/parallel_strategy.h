// How the gradients of a training step come about on the ranks of a mesh.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/data/data_loader.h"
#include "trainer/health/run_monitor.h"
#include "trainer/model/ops/weight_copies.h"
#include "trainer/optim/amp.h"
#include "trainer/optim/optimizer.h"
#include "trainer/parallel/mesh/mesh.h"
#include "trainer/run/batch_plan.h"
#include "trainer/run/state/distributed_state.h"
#include "trainer/run/strategy/divided_model.h"
#include "trainer/run/strategy/loss_weights.h"
#include "trainer/run/strategy/micro_batch_graphs.h"
#include "trainer/run/strategy/model_norm.h"
#include "trainer/task/task.h"

namespace ddp::train {

struct Config;

/// What the passes of one step use.
struct StepContext {
  DataLoader& loader;
  RunMonitor& monitor;
  Optimizer& optimizer;
  const GradScaler& scaler;
  int64_t steps_made;
  /// Asked between two micro-batches, as often on every rank, and not by stages of a pipeline; true
  /// abandons the step. May be empty.
  const std::function<bool()>& gives_up;
};

/// A step's gradient, which each rank has for the parameters that it updates.
struct StepGradient {
  torch::Tensor norm;  ///< The whole model's, unscaled; a float32 scalar on the device.
  std::optional<torch::Tensor> found_inf;  ///< See GradScaler; the same on all ranks.
};

/// Owns all that depends on how the ranks divide a training (distributed_config.strategy, tensor
/// and pipeline): the passes of micro-batches, reductions, the gradient norm, weights that are
/// gathered or shared, and the layout of the training state. This class trains a model that is not
/// cut into stages. Construction, begin(), the passes, finish_gradients(), sharing of weights and
/// step_loss() are collectives of all ranks; of them step_loss() alone is a host sync.
class ParallelStrategy {
 public:
  /// What a strategy is made of; the referents outlive it.
  struct Setup {
    const Config& config;
    torch::Device device;
    Mesh& mesh;
    Task& task;
    const BatchPlan& batches;

    int64_t own_micro_batches() const {
      return batches.of_rank(mesh.data().rank(), mesh.data().size());
    }
  };

  ParallelStrategy(const Setup& setup, DividedModel model);
  virtual ~ParallelStrategy() = default;
  ParallelStrategy(const ParallelStrategy&) = delete;
  ParallelStrategy& operator=(const ParallelStrategy&) = delete;

  /// The parameters, or shards of them, that this rank updates.
  const TrainedParameters& updated() const { return model_.updated; }
  int64_t updated_elements() const;
  int64_t own_micro_batches() const { return setup_.own_micro_batches(); }
  /// "model.*" of snapshots, as this rank holds them.
  std::vector<NamedTensor> weights() const {
    sync().settle_weights();
    return model_.weights;
  }
  /// Whether no rank has all weights, so that every pass of the model is a collective.
  bool divides_weights() const {
    return setup_.mesh.divides_model() || model_.sync->divides_weights();
  }
  DistributedState& state() { return state_; }
  GradientSync& sync() const { return *model_.sync; }
  /// "2 stages, 1f1b, 8 micro-batches; ..."; empty without stages.
  virtual std::string pipeline_text() const { return ""; }
  /// What there is to report of CUDA graphs since the last call.
  std::optional<MicroBatchGraphs::Note> take_graphs_note() { return graphs_.take_note(); }

  /// Call before the first step, when all weights have values. `values` as for
  /// make_parallel_strategy().
  void begin(FirstValues values);
  /// Call whenever weights were loaded after begin().
  void weights_loaded();

  /// Forward and backward passes of this rank's micro-batches: averages their gradients over the
  /// ranks. Returns nullopt if the step was abandoned.
  std::optional<std::vector<MicroBatchLoss>> run_passes(const StepContext& step);
  /// Makes the gradients those of the step: sums partial ones, corrects and unscales them.
  StepGradient finish_gradients(Optimizer& optimizer, GradScaler& scaler,
                                const std::vector<MicroBatchLoss>& losses);
  /// Optimizer::step(), which also writes bfloat16 copies of weights if it can. No collective.
  void update(Optimizer& optimizer, double learning_rate, const torch::Tensor& found_inf,
              const torch::Tensor& scale);
  /// Distributes updated weights; as GradientSync::begin_sharing_weights().
  void begin_sharing_weights() {
    sync().begin_sharing_weights();
    share_table();
  }
  /// The same at once, after anything else has changed the values of updated().
  void share_weights() {
    sync().share_weights();
    share_table();
  }

  /// See LossWeights::step_loss().
  double step_loss(const std::vector<MicroBatchLoss>& losses);

 protected:
  virtual std::optional<std::vector<MicroBatchLoss>> run_micro_batches(const StepContext& step);
  /// Gives the last stage the table of a tied head as it is now on the first one.
  virtual void share_table() {}
  /// `losses` with their means, which a pipeline's last stage alone has.
  virtual std::vector<MicroBatchLoss> with_means(std::vector<MicroBatchLoss> losses) {
    return losses;
  }
  void seed_dropout(const StepContext& step, int64_t micro_batch) const;

  const Setup setup_;
  const std::optional<torch::ScalarType> amp_dtype_;
  const LossWeights loss_weights_;

 private:
  MicroBatchLoss run_micro_batch(const StepContext& step, int64_t micro);
  MicroBatchLoss run_graph(const StepContext& step, const Batch& batch, int64_t micro);
  torch::Tensor mean_loss(const Batch& batch);
  /// Whether the one backward pass of a step makes its gradients. On a GPU that moves fewer bytes
  /// than zeroing and adding, with DDP's buckets, too: c10d averages as it copies into them.
  /// Without buckets, they take no memory outside of backward passes and updates.
  bool makes_gradients() const {
    return may_make_gradients_ && (!graphs_.enabled() || graphs_.makes_gradients());
  }
  /// Once a step.
  void zero_gradients(Optimizer& optimizer);
  bool is_shared_expert(const std::string& parameter) const;
  void average_experts(Optimizer& optimizer) const;
  uint64_t dropout_seed_of(const StepContext& step, int64_t micro_batch) const;

  MicroBatchGraphs graphs_;
  DividedModel model_;
  DistributedState state_;
  ProcessGroup& updating_ranks_;  // which together update each element of the model once
  const ModelNorm norm_;
  const std::function<void()> sum_partial_gradients_;
  WeightCopies weight_copies_;
  const bool may_make_gradients_;
  bool gradients_are_ready_ = false;  // to be added to, or not there
};

/// Builds the task's model, divides it and returns its strategy. `values`: of a new run's weights,
/// or kept to be loaded. Throws UserError if this configuration divides the model so that it cannot
/// be trained.
std::unique_ptr<ParallelStrategy> make_parallel_strategy(const ParallelStrategy::Setup& setup,
                                                         FirstValues values);
/// For make_parallel_strategy(): of a model that is cut into stages.
std::unique_ptr<ParallelStrategy> make_pipeline_strategy(const ParallelStrategy::Setup& setup,
                                                         DividedModel model);

}  // namespace ddp::train
