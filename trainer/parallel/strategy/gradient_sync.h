// How the gradients of all ranks become one: the training step's view of a parallel strategy.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/parallel/collectives/process_group.h"

namespace ddp::train {

using NamedParameters = std::vector<std::pair<std::string, torch::Tensor>>;

/// Of one backward pass with communication, milliseconds.
struct SyncTimes {
  double backward_ms = 0.0;       ///< From its begin to its last gradient.
  double communication_ms = 0.0;  ///< From the first bucket's start to the last one's end.
  double overlap_ms = 0.0;        ///< Of that, while gradients were still being computed.

  bool operator==(const SyncTimes&) const = default;
};

class GradientSync {
 public:
  virtual ~GradientSync() = default;

  /// Before the forward pass of a micro-batch. The gradients of all but the `last` one of an
  /// optimizer step only add up on this rank (torch's no_sync()).
  virtual void begin_micro_batch(bool last) = 0;
  /// The backward pass. After that of the last micro-batch the gradients are those of all ranks,
  /// averaged.
  virtual void backward(const torch::Tensor& loss) = 0;
  /// Whether every micro-batch of a step is reduced: ranks with fewer of them than others then take
  /// part by skip_micro_batch(), where `forward`, which makes the loss of any batch, may be
  /// called; it counts for nothing.
  virtual bool reduces_every_micro_batch() const { return false; }
  virtual void skip_micro_batch(const std::function<torch::Tensor()>& /*forward*/) {}
  /// Around forward passes without a backward pass, of which all ranks make the same ones if
  /// divides_weights(). The second one also after a forward pass that threw; throws nothing.
  virtual void begin_inference() {}
  virtual void end_inference() {}
  /// Whether the weights themselves are divided between the ranks: every forward pass is a
  /// collective then.
  virtual bool divides_weights() const { return false; }
  /// What a backward pass communicates by, for messages.
  virtual const char* collective_name() const { return "gradients_all_reduce"; }
  /// L2 norm over the gradients of the model, of which this rank updates `gradients`, a float32
  /// scalar on their device; no host sync.
  virtual torch::Tensor global_norm(const std::vector<torch::Tensor>& gradients) = 0;
  /// From 1 or 0, whether a gradient that this rank updates is not finite, to whether any is.
  virtual void combine_found_inf(torch::Tensor& /*found_inf*/) {}
  /// After an update: every rank gets the weights that others have updated.
  virtual void share_weights() {}
  /// The same, but may overlap the next forward pass: until then, nothing may read weights before
  /// settle_weights().
  virtual void begin_sharing_weights() { share_weights(); }
  virtual void settle_weights() {}
  virtual bool weights_are_on_their_way() const { return false; }
  /// From the next step on, times() is that of the last one.
  virtual void measure_times() = 0;
  /// A host sync. Nothing for a rank alone, or where nothing was measured.
  virtual std::optional<SyncTimes> times() = 0;
};

/// The values of the parameters on other ranks than 0.
enum class FirstValues {
  kOfRankZero,  ///< Copied from there.
  kKeep         ///< Who calls sees to it that they are equal before the first step.
};

/// `parameters` are those that are trained. Checks that every rank has the same ones (RunError
/// otherwise). `forward` makes the loss of a small throw-away batch with the graph of a training
/// step; gradients hold garbage afterwards.
std::unique_ptr<GradientSync> make_gradient_sync(NamedParameters parameters, ProcessGroup& group,
                                                 const DistributedConfig& config,
                                                 FirstValues values,
                                                 const std::function<torch::Tensor()>& forward);

}  // namespace ddp::train
