// Batch normalisation whose running statistics do not depend on how a step is divided among ranks.
//
// After S. Ioffe, C. Szegedy, "Batch normalization: accelerating deep network training by reducing
// internal covariate shift" (ICML 2015); synchronised as torch's SyncBatchNorm. torch's own module
// moves its running statistics in each forward pass, so they would follow the micro-batches of one
// rank alone; here a step's micro-batches on all ranks count alike, and the statistics move once.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <utility>

namespace ddp::train {

/// Adds up a tensor over the ranks, in place.
using SumOverRanks = std::function<void(torch::Tensor)>;

class BatchNormImpl : public torch::nn::Module {
 public:
  explicit BatchNormImpl(int64_t channels);

  /// [B, C, H, W] -> the same shape. In training by the mean and variance of this micro-batch, or,
  /// when synchronised, of the micro-batches that all ranks pass through it at the same time; else
  /// by the running statistics.
  torch::Tensor forward(const torch::Tensor& x_BCHW);

  /// `sum` must be called by all ranks alike from now on.
  void synchronise(SumOverRanks sum, int64_t ranks);

  /// Moves the running statistics by a tenth towards the mean of those of the micro-batches since
  /// the last call, on all ranks. `discard` (float32 scalar): 1 leaves them as they are.
  void end_step(const SumOverRanks& sum, const torch::Tensor& discard);
  /// The sums over the micro-batches since the last end_step(); undefined if there were none.
  const torch::Tensor& seen() const { return seen_; }
  /// Restores an earlier seen().
  void set_seen(torch::Tensor seen) { seen_ = std::move(seen); }

  torch::Tensor weight;
  torch::Tensor bias;
  torch::Tensor running_mean;  ///< Buffers: part of the state, but not parameters.
  torch::Tensor running_var;

 private:
  torch::Tensor normalise_locally(const torch::Tensor& x_BCHW);
  torch::Tensor normalise_together(const torch::Tensor& x_BCHW);
  void remember(const torch::Tensor& mean_C, const torch::Tensor& var_C, double count);

  SumOverRanks sum_;  // null: each rank on its own
  int64_t ranks_ = 1;
  torch::Tensor seen_;  // [2, C] + [1]: sums of means and unbiased variances, micro-batches
};
TORCH_MODULE(BatchNorm);

}  // namespace ddp::train
