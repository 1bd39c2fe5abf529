// Adam's update in blocks whose averages are in 8 bits. No LibTorch.
#pragma once

#include <cstdint>

#include "trainer/runtime/dynamic_map.h"

namespace ddp::train {

/// One parameter, or a shard of one that begins with a block, and Adam's averages of it.
struct AdamBlocks {
  float* weights;
  const float* gradients;
  uint8_t* exp_avg;
  float* exp_avg_absmax;  ///< One for each block.
  uint8_t* exp_avg_sq;
  float* exp_avg_sq_absmax;
  int64_t size;  ///< Elements; the last block may be shorter.
};

/// Adam's numbers in one step.
struct AdamFactors {
  float beta1, beta2;
  float rest1, rest2;  ///< 1 - beta
  float shrink;        ///< Factor of the weight: 1 - learning rate * decoupled weight decay.
  float decay;         ///< Added to the gradient times the weight.
  float step_size;     ///< Learning rate / (1 - beta1^step)
  float square_root;   ///< sqrt(1 - beta2^step)
  float epsilon;
};

/// Updates the blocks [first, last): dequantizes the averages, updates them and the weights in
/// float32, and quantizes the new averages. A square that is not 0 never becomes 0, unlike in
/// bitsandbytes: an element with a zero gradient would take a step of average / epsilon.
void update_blocks(const AdamBlocks& blocks, const AdamFactors& factors, int64_t first,
                   int64_t last);

}  // namespace ddp::train
