// The norm of a model's gradients, however ranks divide it.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "trainer/layout/tensor_layout.h"
#include "trainer/optim/optimizer.h"
#include "trainer/parallel/collectives/process_group.h"

namespace ddp::train {

/// Equals gradient_norm() of the whole model, each element counted once. A parameter that one rank
/// holds whole has the same blocks as in one process, and the blocks of all parameters are added in
/// the model's order: divided into stages, a model's norm is bitwise identical to one process's. If
/// several ranks hold parts of a parameter, each rank has blocks of its own part.
class ModelNorm {
 public:
  /// `parameters`: those that this rank updates, or shards of them, whose layouts are their own or
  /// in `layouts`. `group`: the ranks that together update each element of the model once; if that
  /// is this rank alone, layouts are not needed. A collective over `group`.
  ModelNorm(const std::vector<Parameter>& parameters, const TensorLayouts& layouts,
            ProcessGroup& group);

  /// Returns the norm for the parameters' gradients, given in order: a float32 scalar on their
  /// device, equal on all ranks of the group. A collective; no host sync.
  torch::Tensor of(const std::vector<torch::Tensor>& gradients) const;

 private:
  ProcessGroup& group_;
  std::vector<std::size_t> counted_;  // indices into the parameters
  torch::Tensor places_;              // indices of their blocks among all
  int64_t blocks_ = 0;
};

}  // namespace ddp::train
