// Forward and backward pass of a micro-batch as one CUDA graph (trainer_config.cuda_graphs). A
// small model leaves a GPU idle while the host launches hundreds of short kernels; a graph is one
// launch.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/trainer_config.h"
#include "trainer/data/batch.h"
#include "trainer/model/blocks/layer_seeds.h"
#include "trainer/parallel/device/cuda_module.h"

namespace ddp::train {

struct Config;

/// Returns why a run cannot use graphs; empty if it can. `ranks` train together.
/// `keeps_statistics`: passes change more in the model than gradients.
std::string why_no_cuda_graphs(const Config& config, torch::Device device, int ranks,
                               bool keeps_statistics);

/// Owns the graphs of one run, one per kind of batch: shapes, types and number of targets. A kind's
/// first batch runs without a graph, on the stream in which its second one is recorded. For the
/// training thread only.
class MicroBatchGraphs {
 public:
  /// Runs both passes of a batch on the device: adds to existing gradients, creates the others.
  /// Returns the loss. Needs nothing from the host but launches, which must be the same for each
  /// batch of a kind.
  using Passes = std::function<torch::Tensor(const Batch&)>;
  /// For the log; also whether an explicit request of the user fails.
  struct Note {
    std::string text;
    bool warns = false;
  };

  /// `why_not`: from why_no_cuda_graphs().
  MicroBatchGraphs(AutoSwitch wanted, torch::Device device, const std::string& why_not,
                   int64_t micro_batches);

  /// Whether graphs are used, now or after the first steps.
  bool enabled() const { return generators_.has_value(); }
  void begin_step() { ++steps_; }
  /// Whether run() accepts this batch, which may be in host memory. False in the first steps, in
  /// which kernels are loaded, and for any kind after the first four.
  bool takes(const Batch& batch);
  /// Whether run() overwrites a step's gradients instead of adding to them. False if a step has
  /// several micro-batches, or `parameters` that a pass does not use.
  bool makes_gradients() const { return makes_gradients_; }
  /// Records or replays `passes`; returns their loss. Drops graphs of other `parameters`, or of
  /// gradients at other addresses.
  torch::Tensor run(const Batch& batch, uint64_t dropout_seed,
                    const std::vector<torch::Tensor>& parameters, const Passes& passes);
  /// Drops the graphs. Call before tensors that they refer to are replaced.
  void forget() { kinds_.clear(); }

  std::optional<Note> take_note() { return std::exchange(note_, std::nullopt); }

 private:
  struct Kind {
    Batch inputs;  ///< Read by the graph.
    bool rehearsed = false;
    std::unique_ptr<CapturedWork> graph;
    torch::Tensor loss;                    ///< Written by it.
    std::vector<torch::Tensor> gradients;  ///< Likewise, if it creates them.
  };
  Kind* find(const Batch& batch);
  bool too_large() const;
  void give_up(const std::string& why);
  void record(Kind& kind, const std::vector<torch::Tensor>& parameters, const Passes& passes);
  /// Ensures that all gradients exist after the first passes.
  void complete(const std::vector<torch::Tensor>& parameters);
  /// Runs `passes` on a side stream, ordered with the current one.
  torch::Tensor beside(const Batch& inputs, const Passes& passes);

  const bool forced_;
  const torch::Device device_;
  std::optional<LayerGenerators> generators_;
  std::optional<c10::Stream> side_;
  std::vector<std::unique_ptr<Kind>> kinds_;
  std::vector<const void*> addresses_;
  bool makes_gradients_;
  int64_t steps_ = 0;
  bool measured_ = false;
  bool reported_ = false;
  std::optional<Note> note_;
};

}  // namespace ddp::train
