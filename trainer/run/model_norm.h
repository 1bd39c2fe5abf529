// The norm of the gradients of a model that is divided between ranks.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "trainer/layout/tensor_layout.h"
#include "trainer/optim/optimizer.h"
#include "trainer/parallel/collectives/process_group.h"

namespace ddp::train {

/// As gradient_norm() of the whole model, each element counted once. The blocks of a parameter that
/// one rank holds whole are those of one process, and the blocks of all parameters are added in the
/// model's order: cut into stages, a model's norm has the same bits as on one process. Of a
/// parameter that several ranks hold parts of, each rank has blocks of its own part.
class ModelNorm {
 public:
  /// `parameters`: those that this rank updates, or pieces of them, each with a cut. `group`: the
  /// ranks that together update each element of the model once. A collective over it.
  ModelNorm(const std::vector<Parameter>& parameters, const TensorLayouts& layouts,
            ProcessGroup& group);

  /// The norm of the parameters' gradients, in order: a float32 scalar on their device, equal on
  /// all ranks of the group. A collective; no host sync.
  torch::Tensor operator()(const std::vector<torch::Tensor>& gradients) const;

 private:
  ProcessGroup& group_;
  std::vector<std::size_t> counted_;  // indices into the parameters
  torch::Tensor places_;              // of their blocks among all
  int64_t blocks_ = 0;
};

}  // namespace ddp::train
