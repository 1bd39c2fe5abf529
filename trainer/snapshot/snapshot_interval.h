// Decides how often to save: a pure function of the cost of a save.
#pragma once

#include <algorithm>
#include <cstddef>

#include "trainer/config/trainer_config.h"

namespace ddp::train {

/// The cost of the last save; zeros before the first.
struct SaveCost {
  double held_up = 0.0;   ///< Seconds in which training waited or lost a core.
  double busy = 0.0;      ///< Seconds from its start to its end in the background.
  std::size_t bytes = 0;  ///< Written.
};

/// Returns the seconds between starts of automatic snapshots: as often as all of snapshot_overhead,
/// snapshot_min_interval_s, snapshot_disk_share and snapshot_gb_per_hour allow.
///
/// With less the loss at a failure (half an interval on average) gets smaller and the cost of
/// saving larger; Young, "A first order approximation to the optimum checkpoint interval", 1974,
/// gives sqrt(2 x cost x mean time between failures), which needs a number that is unknown here.
inline double snapshot_interval(const SaveCost& cost, const TrainerConfig& config) {
  constexpr double kBytesPerGb = 1e9;
  constexpr double kSecondsPerHour = 3600.0;
  const double per_second = config.snapshot_gb_per_hour * kBytesPerGb / kSecondsPerHour;
  const double for_bytes = per_second > 0.0 ? static_cast<double>(cost.bytes) / per_second : 0.0;
  return std::max({config.snapshot_min_interval_s, cost.held_up / config.snapshot_overhead,
                   cost.busy / config.snapshot_disk_share, for_bytes});
}

}  // namespace ddp::train
