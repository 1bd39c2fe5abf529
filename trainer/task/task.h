// What is trained: the samples, the model, its loss and its metrics. The engine (run/, snapshot/,
// parallel/, optim/) knows a job by this interface alone.
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

#include "trainer/config/config.h"
#include "trainer/data/batch.h"
#include "trainer/data/sample_source.h"
#include "trainer/metrics/confusion_matrix.h"
#include "trainer/model/training_cost.h"
#include "trainer/optim/optimizer.h"
#include "trainer/parallel/process_group.h"

namespace ddp::train {

/// Name and value, the loss first.
using Metrics = std::vector<std::pair<std::string, double>>;

/// Of a batch of evaluation samples.
struct BatchSums {
  torch::Tensor sums;  ///< float32 [Task::sums()], each a sum over the samples.
  /// int64 [K, K], samples by true and by predicted class; not defined without classes().
  torch::Tensor confusion;
};

/// Used by one thread, but for the sources, which the loader's threads read.
class Task {
 public:
  virtual ~Task() = default;

  virtual const SampleSource& training() const = 0;
  /// Null when there is nothing to evaluate on.
  virtual const SampleSource* evaluation() const = 0;
  /// What is evaluated once, when training has ended; null when there is nothing.
  virtual const SampleSource* test() const { return nullptr; }

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
  /// Of a batch of evaluation samples, in eval mode.
  virtual BatchSums evaluate(const Batch& batch) = 0;
  virtual int64_t sums() const = 0;
  /// The classes that evaluate() counts confusions of, by name; empty: it counts none.
  virtual std::vector<std::string> classes() const { return {}; }
  /// Of the sums over all evaluation samples.
  virtual Metrics metrics(const std::vector<double>& sums) const = 0;
  /// The names in metrics(), in their order.
  virtual std::vector<std::string> metric_names() const = 0;

  /// What the model makes up now, for people to read, by random numbers from `seed` alone. For one
  /// rank: the model's mode and torch's generators are as before. None where the task has no such
  /// thing, or when `go_on`, asked time and again, said no.
  virtual std::optional<std::string> sample(uint64_t /*seed*/,
                                            const std::function<bool()>& /*go_on*/) {
    return std::nullopt;
  }

  /// What speeds are counted in, for one sample: tokens of a text, 1 for an image.
  virtual int64_t units_per_sample() const = 0;
  virtual std::string_view unit() const = 0;  ///< "tokens", "images"
  // By arithmetic alone, so that these three need no build_model().
  /// The model's parameters; empty: not known.
  virtual std::vector<ParameterPart> parameter_parts() const { return {}; }
  /// Floating-point operations of the model, forward and backward, for one unit; 0: not known.
  virtual double flops_per_unit() const { return 0.0; }
  /// What a rank would need to train this task by `config`, which differs from its own at most in
  /// what fits the same data; empty: not known.
  virtual std::vector<MemoryItem> memory_items(const Config& /*config*/,
                                               const ComputePlace& /*place*/) const {
    return {};
  }

  /// Its part of a snapshot's metadata: tokenizer, names of labels.
  virtual std::map<std::string, std::string> metadata() const = 0;
  /// Throws UserError when a snapshot with this metadata cannot go on with these data.
  virtual void check_resume(const std::map<std::string, std::string>& metadata,
                            const std::string& snapshot) const = 0;
  /// What this rank has noticed since the last call and people should know: samples left out.
  virtual std::vector<std::string> take_warnings() { return {}; }
  /// Lines about model and data for the start of the log.
  virtual std::vector<std::string> describe() const = 0;
  /// What to do with a snapshot that is trained.
  virtual std::string next_command(const std::string& snapshot) const {
    return "trainer eval --snapshot " + snapshot;
  }
};

/// The task that `config` names, with its data opened. `metadata` is that of the snapshot to resume
/// from, null for a fresh start. Throws UserError: data that cannot be read or do not fit.
std::unique_ptr<Task> make_task(const Config& config,
                                const std::map<std::string, std::string>* metadata);

}  // namespace ddp::train
