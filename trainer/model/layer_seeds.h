// Dropout that depends on the layer, not on what was drawn before it.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace ddp::train {

/// Seeds the default generator of `device` anew for each layer, from the seed that it had at
/// construction: a process that has some of the layers draws the masks that one with all of them
/// draws.
class LayerSeeds {
 public:
  /// `active`: whether anything is drawn at all; else the generator is left alone.
  LayerSeeds(torch::Device device, bool active);
  void begin(int64_t layer);

 private:
  at::Generator generator_;
  uint64_t seed_ = 0;
  bool active_;
};

}  // namespace ddp::train
