// DistributedDataParallel over c10d's Reducer: gradients are averaged over the ranks, bucket by
// bucket, during the backward pass.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <vector>

#include "trainer/config/distributed_config.h"
#include "trainer/parallel/collectives/process_group.h"
#include "trainer/parallel/strategy/gradient_sync.h"

namespace c10d {
class Logger;
class Reducer;
}  // namespace c10d

namespace ddp::train {

/// Throws RunError unless every rank has parameters of the same number, shapes and types. A
/// collective.
void check_same_parameters(const std::vector<torch::Tensor>& parameters, ProcessGroup& group);

/// Owns the Reducers of one model. Does not own the model and never runs its forward pass itself.
///
/// Construction checks that every rank has the same parameters (number, shapes, types; RunError
/// otherwise) and copies rank 0's values to all, or keeps theirs. Without peers, calls are no-ops.
///
/// c10d lays out the buckets again after the first backward pass, in the order in which
/// gradients arrive. With three and more ranks that layout decides the order of summation, so a
/// resumed run must not start with another one than the uninterrupted run has at the same step:
/// warm_up() makes the rebuild happen before the first real step, always.
class DistributedDataParallel : public GradientSync {
 public:
  /// For a single process.
  DistributedDataParallel() = default;
  DistributedDataParallel(NamedParameters parameters, ProcessGroup& group,
                          const DistributedConfig& config,
                          FirstValues values = FirstValues::kOfRankZero);
  ~DistributedDataParallel() override;
  /// Averages the gradients of further parameters over other ranks in the same passes. Call before
  /// warm_up().
  void add(NamedParameters parameters, ProcessGroup& group, const DistributedConfig& config,
           FirstValues values);
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  /// Runs forward and backward passes of `forward` until the buckets have their final layout; on
  /// CPUs nothing is sent. Gradients hold garbage afterwards.
  void warm_up(const std::function<torch::Tensor()>& forward);

  void begin_micro_batch(bool last) override;
  void backward(const torch::Tensor& loss) override;
  void measure_times() override;
  /// The times of c10d's own Logger.
  std::optional<SyncTimes> times() override;

 private:
  void prepare_for_backward(const torch::Tensor& loss);

  struct Part {
    c10::intrusive_ptr<c10d::ProcessGroup> gloo_view;  // the Reducer's group of a model on CPUs
    std::shared_ptr<c10d::Reducer> reducer;
  };
  std::vector<Part> parts_;
  std::shared_ptr<c10d::Logger> times_;
  bool sync_ = true;
  bool learn_static_graph_ = false;
};

}  // namespace ddp::train
