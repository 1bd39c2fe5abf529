// The share of a device's peak throughput that a training reaches.
#pragma once

#include <cstdint>

namespace ddp::train {

/// Model FLOPs utilization: the work of all ranks as a share of their devices' peak. `peak`: FLOP/s
/// of one rank's device.
inline double model_flops_utilization(double tokens_per_second, double per_token, double peak,
                                      int64_t ranks) {
  return tokens_per_second * per_token / (peak * static_cast<double>(ranks));
}

}  // namespace ddp::train
