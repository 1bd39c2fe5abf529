// How often to save: a pure function of what a save costs.
#pragma once

#include <algorithm>

namespace ddp::train {

/// Seconds from the begin of one snapshot to that of the next one, so that saving costs at most
/// `overhead` (a share) of the time: `cost` is the wall time for which one save held up training,
/// `busy` how long it was at work in the background. Never less than `busy`: one at a time.
///
/// With less than that the loss at a failure (half an interval on average) gets smaller and the
/// cost of saving larger; Young, "A first order approximation to the optimum checkpoint interval",
/// 1974, gives sqrt(2 x cost x mean time between failures), which needs a number nobody knows here.
inline double snapshot_interval(double cost, double busy, double overhead) {
  constexpr double kShortest = 0.5;  // s; below, nobody gains anything
  return std::max({kShortest, cost / overhead, busy});
}

}  // namespace ddp::train
