// Combines the losses of micro-batches with unequal numbers of targets into the loss of a step.
//
// Micro-batch m has n_m targets, up to F, and l_m is its task's mean over them. A step has M
// micro-batches on R ranks. Its loss is the mean over all its targets:
//
//     L = sum(n_m l_m) / sum(n_m)
//
// The number of all targets is known only after the last micro-batch. The backward passes therefore
// count in full micro-batches, and the gradients of the step are corrected once:
//
//     for_backward(): l_m (n_m / F) / (M / A)    summed, and divided by A, which is R, or 1 where
//                                                that is to be one process's arithmetic, by
//                                                GradientSync: sum(n_m l_m) / (F M)
//     correct():      gradients F M / sum(n_m)
//
// Where every micro-batch is full, n_m / F and the correction are 1 and left out: no digit changes,
// no communication. A micro-batch with n_m = 0 goes through both passes and adds zeros, so that
// ranks with different shares of a step can make the same number of passes; M does not count it.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "trainer/data/sample_source.h"
#include "trainer/parallel/collectives/process_group.h"

namespace ddp::train {

struct MicroBatchLoss {
  torch::Tensor mean;   ///< Over the targets; a float32 scalar.
  int64_t targets = 0;  ///< Batch::target_count.
};

class LossWeights {
 public:
  /// `micro_batches`: per step, on all ranks of `group`, which must outlive it. `averaged_over`: A.
  LossWeights(const TargetCount& targets, int64_t batch_size, int64_t micro_batches,
              ProcessGroup& group, int averaged_over);

  /// Returns the scalar from which the micro-batch's backward pass starts.
  torch::Tensor for_backward(const MicroBatchLoss& loss) const;
  /// Scales `gradients`, averaged over the ranks. `losses`: this rank's micro-batches. A collective
  /// unless every micro-batch is full; no host sync.
  void correct(const std::vector<torch::Tensor>& gradients,
               const std::vector<MicroBatchLoss>& losses) const;
  /// Returns L; NaN for a step without a target. A collective, and a host sync.
  double step_loss(const std::vector<MicroBatchLoss>& losses) const;

 private:
  double in_full_batches(int64_t targets) const {
    return static_cast<double>(targets) / static_cast<double>(full_);
  }

  const int64_t full_;  // F
  const bool always_full_;
  const int64_t micro_batches_;
  ProcessGroup& group_;
  const int averaged_over_;
};

}  // namespace ddp::train
