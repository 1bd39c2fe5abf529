// The interface to what is trained: samples, model, loss and metrics. The engine (run/, snapshot/,
// parallel/, optim/) accesses a job through this interface alone. The costs of training and its
// texts for users are separate interfaces, for code that needs no more.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

struct Config;

/// Name and value, the loss first.
using Metrics = std::vector<std::pair<std::string, double>>;

/// Sums over a batch of evaluation samples.
struct BatchSums {
  /// float32 [Task::sums()], each a sum over the samples; or [samples, Task::sums()], see
  /// Task::keeps_samples().
  torch::Tensor sums;
  /// int64 [K, K], samples by true and by predicted class; not defined without classes().
  torch::Tensor confusion;
};

/// A further set to evaluate on.
struct NamedSource {
  std::string name;
  const SampleSource* samples;
};

/// Single-threaded, except the sources, which the loader's threads read.
class Task : public TaskCost, public TaskReport {
 public:
  virtual const SampleSource& training() const = 0;
  /// Null if there is nothing to evaluate on.
  virtual const SampleSource* evaluation() const = 0;
  /// Sets evaluated whenever evaluation() is, each separately.
  virtual std::vector<NamedSource> evaluation_sets() const { return {}; }
  /// Samples evaluated once, after training; null if there are none.
  virtual const SampleSource* test() const { return nullptr; }

  /// Call before build_model(), which then builds this rank's part of a model divided among ranks.
  /// `mesh` must outlive the task. Throws UserError if it cannot be divided like that.
  virtual void divide(Mesh& mesh);
  void check_division(const Config& config) const override;
  /// The parts of the whole model's parameters that this rank holds; empty: it has all of them.
  virtual TensorLayouts parameter_layouts() const { return {}; }
  /// The whole model's parameters(), the same on all ranks.
  virtual std::vector<ParameterShape> whole_shapes() const;
  /// The model that build_model() has built, as a pipeline runs it; null if it is not divided into
  /// stages.
  virtual StageModel* stage_model() { return nullptr; }

  /// Builds the model in training mode, on `device`, with initial weights that depend on `seed`
  /// alone; without a seed they may be arbitrary, as all of them are about to be loaded. Called
  /// once, before anything below.
  virtual void build_model(torch::Device device, std::optional<uint64_t> seed) = 0;
  virtual torch::nn::Module& model() = 0;
  /// Every distinct parameter that is trained, and that snapshots hold, once, in a fixed order:
  /// the network's, or those of its adapters.
  virtual std::vector<Parameter> parameters() const = 0;

  /// State that no gradient changes, such as running statistics; in a fixed order.
  virtual std::vector<NamedTensor> buffers() const { return {}; }
  /// The keys that fix the shapes of the tensors: a snapshot with other values does not fit.
  virtual std::vector<std::string> shape_keys() const { return {}; }

  /// Call before training, with the ranks that train together and the micro-batches of a step on
  /// all of them. Throws UserError if a step cannot be divided like that.
  virtual void join(ProcessGroup& /*group*/, int64_t /*micro_batches*/) {}

  /// Call before training samples are loaded, within an Inference: computes buffers() that depend
  /// on the initial weights, unless a snapshot had them. A collective; calls `alive` before each
  /// pass of the model.
  virtual void prepare(ProcessGroup& /*group*/, const std::function<void()>& /*alive*/) {}

  /// Forward pass of a batch on the model's device: the mean over its targets, a float32 scalar
  /// with a graph; of a batch with target_count 0 any finite value, whose gradients are finite,
  /// too. No host sync.
  virtual torch::Tensor loss(const Batch& batch) = 0;
  /// The loss of the smallest batch with the graph of a training step.
  virtual torch::Tensor smallest_loss() = 0;
  /// Call on all ranks after the backward passes of a step: updates the buffers with the
  /// micro-batches of all ranks. `discard`, a float32 scalar on the model's device: 1 leaves them
  /// as they were, as there is no update.
  virtual void end_step(ProcessGroup& /*group*/, const torch::Tensor& /*discard*/) {}
  /// What the last step's forward passes measured besides the loss, over all ranks: the most
  /// telling two first. A collective; empty: nothing.
  virtual Metrics step_metrics(ProcessGroup& /*group*/) { return {}; }
  /// The parameters() whose gradients cover, on each rank that shares a model, only its own heads
  /// or rows.
  virtual std::vector<std::string> partial_gradients() const { return {}; }
  /// Sums those gradients over the ranks that share a model, after the backward passes of a step.
  virtual void complete_gradients() {}
  /// Evaluates a batch of samples, in eval mode.
  virtual BatchSums evaluate(const Batch& batch) = 0;
  virtual int64_t sums() const = 0;
  /// Whether metrics() needs the numbers of each sample, as a rank correlation does: they are then
  /// given one sample after the other instead of their sums.
  virtual bool keeps_samples() const { return false; }
  /// The classes that evaluate() counts confusions of, by name; empty: it counts none.
  virtual std::vector<std::string> classes() const { return {}; }
  /// Computes the metrics from the sums over all evaluation samples.
  virtual Metrics metrics(const std::vector<double>& sums) const = 0;
  /// The names in metrics(), in their order.
  virtual std::vector<std::string> metric_names() const = 0;

  /// The task's part of a snapshot's metadata: tokenizer, names of labels.
  virtual std::map<std::string, std::string> metadata() const = 0;
  /// Throws UserError if a snapshot with this metadata cannot be resumed with these data.
  virtual void check_resume(const std::map<std::string, std::string>& metadata,
                            const std::string& snapshot) const = 0;
};

/// Creates the task of `config` and opens its data. `metadata`: of the snapshot to resume from,
/// null for a fresh start. Throws UserError if data cannot be read or do not fit.
std::unique_ptr<Task> make_task(const Config& config,
                                const std::map<std::string, std::string>* metadata);

}  // namespace ddp::train
