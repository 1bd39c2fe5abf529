// What is trained: the samples, the model, its loss and its metrics. The engine (run/, snapshot/,
// parallel/, optim/) knows a job by this interface alone. What the training costs and what people
// see of it are interfaces of their own, for those who need no more.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/data/batch.h"
#include "trainer/data/sample_source.h"
#include "trainer/layout/tensor_layout.h"
#include "trainer/metrics/confusion_matrix.h"
#include "trainer/optim/optimizer.h"
#include "trainer/parallel/mesh/mesh.h"
#include "trainer/task/stage_model.h"
#include "trainer/task/task_cost.h"
#include "trainer/task/task_report.h"

namespace ddp::train {

/// Name and value, the loss first.
using Metrics = std::vector<std::pair<std::string, double>>;

/// Sums over a batch of evaluation samples.
struct BatchSums {
  torch::Tensor sums;  ///< float32 [Task::sums()], each a sum over the samples.
  /// int64 [K, K], samples by true and by predicted class; not defined without classes().
  torch::Tensor confusion;
};

/// A further set to evaluate on.
struct NamedSource {
  std::string name;
  const SampleSource* samples;
};

/// Used by one thread, but for the sources, which the loader's threads read.
class Task : public TaskCost, public TaskReport {
 public:
  virtual const SampleSource& training() const = 0;
  /// Null when there is nothing to evaluate on.
  virtual const SampleSource* evaluation() const = 0;
  /// What is evaluated whenever evaluation() is, each on its own.
  virtual std::vector<NamedSource> evaluation_sets() const { return {}; }
  /// What is evaluated once, when training has ended; null when there is nothing.
  virtual const SampleSource* test() const { return nullptr; }

  /// Before build_model(): the model that it builds is this rank's part of one that is divided
  /// between ranks. `mesh` outlives the task. Throws UserError if it cannot be divided like that.
  virtual void divide(Mesh& mesh);
  void check_division(const Config& config) const override;
  /// What this rank's parameters are of the whole model's; empty: it has the whole model.
  virtual TensorLayouts parameter_layouts() const { return {}; }
  /// What parameters() are of the whole model: the same on all ranks.
  virtual std::vector<ParameterShape> whole_shapes() const;
  /// The model that build_model() has built, as a pipeline runs it; null if it is not divided into
  /// stages.
  virtual StageModel* stage_model() { return nullptr; }

  /// In training mode, on `device`, with initial weights that depend on `seed` alone; without one
  /// they may be anything, as all of them are about to be loaded. Called once, before anything
  /// below.
  virtual void build_model(torch::Device device, std::optional<uint64_t> seed) = 0;
  virtual torch::nn::Module& model() = 0;
  /// Every distinct parameter that is trained, and that snapshots hold, once, in a fixed order:
  /// the network's, or those of its adapters.
  virtual std::vector<Parameter> parameters() const = 0;

  /// State of the model that no gradient changes, such as running statistics; in a fixed order.
  virtual std::vector<NamedTensor> buffers() const { return {}; }
  /// The keys that fix the shapes of the tensors: a snapshot with other values does not fit.
  virtual std::vector<std::string> shape_keys() const { return {}; }

  /// Before training: the ranks that train together, and the micro-batches of a step on all of
  /// them. Throws UserError when a step cannot be divided like that.
  virtual void join(ProcessGroup& /*group*/, int64_t /*micro_batches*/) {}

  /// Forward pass of a batch on the model's device: the mean over its targets, a float32 scalar
  /// with a graph; of a batch with target_count 0 any finite value, whose gradients are finite,
  /// too. No host sync.
  virtual torch::Tensor loss(const Batch& batch) = 0;
  /// The loss of the smallest batch with the graph of a training step.
  virtual torch::Tensor smallest_loss() = 0;
  /// On all ranks, after the backward passes of a step: gives the buffers the values that the
  /// micro-batches of all ranks lead to. `discard`, a float32 scalar on the model's device: 1
  /// leaves them as they were, as there is no update.
  virtual void end_step(ProcessGroup& /*group*/, const torch::Tensor& /*discard*/) {}
  /// The parameters() whose gradients cover, on each rank that shares a model, only its own heads
  /// or rows.
  virtual std::vector<std::string> partial_gradients() const { return {}; }
  /// Sums those gradients over the ranks that share a model, after the backward passes of a step.
  virtual void complete_gradients() {}
  /// Evaluates a batch of samples, in eval mode.
  virtual BatchSums evaluate(const Batch& batch) = 0;
  virtual int64_t sums() const = 0;
  /// The classes that evaluate() counts confusions of, by name; empty: it counts none.
  virtual std::vector<std::string> classes() const { return {}; }
  /// Computes the metrics from the sums over all evaluation samples.
  virtual Metrics metrics(const std::vector<double>& sums) const = 0;
  /// The names in metrics(), in their order.
  virtual std::vector<std::string> metric_names() const = 0;

  /// Its part of a snapshot's metadata: tokenizer, names of labels.
  virtual std::map<std::string, std::string> metadata() const = 0;
  /// Throws UserError if a snapshot with this metadata cannot be resumed with these data.
  virtual void check_resume(const std::map<std::string, std::string>& metadata,
                            const std::string& snapshot) const = 0;
};

/// The task that `config` names, with its data opened. `metadata` is that of the snapshot to resume
/// from, null for a fresh start. Throws UserError: data that cannot be read or do not fit.
std::unique_ptr<Task> make_task(const Config& config,
                                const std::map<std::string, std::string>* metadata);

}  // namespace ddp::train
