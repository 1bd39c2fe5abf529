// How much of a device's peak throughput a training reaches.
#pragma once

#include <cstdint>

namespace ddp::train {

/// Model FLOPs utilization, a share: what all ranks together have done of what their devices could
/// do. `peak`: FLOP/s of one rank's device.
inline double model_flops_utilization(double tokens_per_second, double per_token, double peak,
                                      int64_t ranks) {
  return tokens_per_second * per_token / (peak * static_cast<double>(ranks));
}

}  // namespace ddp::train
