// Adam's and AdamW's update of a parameter whose averages are kept in 8 bits (adam_blocks.h).
#pragma once

#include <torch/torch.h>

#include "trainer/optim/adam_blocks.h"
#include "trainer/optim/adam_kernel.h"

namespace ddp::train {

/// The end of the name of BlockAverage::absmax in snapshots, after its average's.
inline constexpr const char* kAbsmax = "_absmax";

/// An average of a parameter in 8 bits, 0 at first.
struct BlockAverage {
  BlockAverage(const torch::Tensor& parameter, const DynamicMap& map);

  torch::Tensor codes;  ///< uint8, contiguous, of the parameter's shape.
  /// float32: the largest magnitude in each block of kStateBlock elements, numbered by rows. A
  /// shard's blocks are those of its parameter, as it begins with one.
  torch::Tensor absmax;
  torch::Tensor values, bounds;  ///< The map's, on the parameter's device.
};

/// One step. `step`: the number of this update; nothing changes if `found_inf` is 1. Float32
/// scalars on the weight's device; the host does not wait for a GPU.
void adam_in_blocks(const torch::Tensor& weight, const torch::Tensor& gradient,
                    const BlockAverage& exp_avg, const BlockAverage& exp_avg_sq,
                    const torch::Tensor& step, const torch::Tensor& found_inf,
                    const AdamNumbers& numbers);

/// The same by torch's operators, as on a GPU; on a CPU bitwise identical.
void adam_by_operators(const torch::Tensor& weight, const torch::Tensor& gradient,
                       const BlockAverage& exp_avg, const BlockAverage& exp_avg_sq,
                       const torch::Tensor& step, const torch::Tensor& found_inf,
                       const AdamNumbers& numbers);

}  // namespace ddp::train
