// Synchronizes gradients across ranks: the training step's interface to a parallel strategy.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/parallel/collectives/process_group.h"

namespace ddp::train {

using NamedParameters = std::vector<std::pair<std::string, torch::Tensor>>;

/// Times of one backward pass with communication, milliseconds.
struct SyncTimes {
  double backward_ms = 0.0;       ///< From its start to its last gradient.
  double communication_ms = 0.0;  ///< From the first bucket's start to the last one's end.
  double overlap_ms = 0.0;        ///< The part during which gradients were still being computed.

  bool operator==(const SyncTimes&) const = default;
};

class GradientSync {
 public:
  virtual ~GradientSync() = default;

  /// Call before the forward pass of a micro-batch. Gradients of all but the `last` one of an
  /// optimizer step are only accumulated on this rank (torch's no_sync()).
  virtual void begin_micro_batch(bool last) = 0;
  /// Runs the backward pass. After the last micro-batch's, the gradients are averaged over all
  /// ranks.
  virtual void backward(const torch::Tensor& loss) = 0;
  /// Whether every micro-batch of a step is reduced: ranks with fewer micro-batches than others
  /// then call skip_micro_batch() to take part. That may call `forward`, which computes the loss of
  /// any batch; the result is discarded.
  virtual bool reduces_every_micro_batch() const { return false; }
  virtual void skip_micro_batch(const std::function<torch::Tensor()>& /*forward*/) {}
  /// Call around inference; if divides_weights(), all ranks must run the same passes. Call
  /// end_inference() also after a forward pass that threw; it never throws.
  virtual void begin_inference() {}
  virtual void end_inference() {}
  /// Whether the weights themselves are divided among the ranks, so that every forward pass is a
  /// collective.
  virtual bool divides_weights() const { return false; }
  /// Name of the backward pass's collective, for messages.
  virtual const char* collective_name() const { return "gradients_all_reduce"; }
  /// Call after an update: distributes updated weights to all ranks.
  virtual void share_weights() {}
  /// The same, but may overlap the next forward pass: until then, nothing may read weights before
  /// settle_weights().
  virtual void begin_sharing_weights() { share_weights(); }
  virtual void settle_weights() {}
  virtual bool weights_are_on_their_way() const { return false; }
  /// From the next step on, times() returns the last step's times.
  virtual void measure_times() = 0;
  /// A host sync. Returns nullopt for a single rank, or if nothing was measured.
  virtual std::optional<SyncTimes> times() = 0;
};

/// Initial values of the parameters on ranks other than 0.
enum class FirstValues {
  kOfRankZero,  ///< Copied from rank 0.
  kKeep         ///< The caller ensures that they are equal before the first step.
};

}  // namespace ddp::train
