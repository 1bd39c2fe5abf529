// The interface to this rank's stages of a model, for a pipeline.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "trainer/data/batch.h"
#include "trainer/model/stage_links.h"

namespace ddp::train {

class StageModel {
 public:
  virtual ~StageModel() = default;

  /// Shape and type of a stage's output for the next one with this batch.
  virtual std::vector<int64_t> activation_shape(const Batch& batch) const = 0;
  virtual torch::TensorOptions activation_options() const = 0;
  /// `x` through this rank's stage number `own_stage`, with a graph; the first stage of the model
  /// does not use it. The last one returns the mean loss, as Task::loss().
  virtual torch::Tensor forward_stage(int own_stage, const torch::Tensor& x,
                                      const Batch& batch) = 0;
  /// See CausalModel::shared_table().
  virtual torch::Tensor shared_table() const = 0;
  /// For Task::evaluate() and sample(), which all ranks of the model then call alike; the sums are
  /// those of the last stage's rank, 0 on the others. `links` outlive the calls.
  virtual void set_links(StageLinks* links) = 0;
};

}  // namespace ddp::train
