// What a run does between two steps.
#pragma once

#include <cstdint>
#include <functional>

#include "trainer/health/phase.h"

namespace ddp::train {

/// Promises in seconds: of work that a disk, a device or the size of the model bounds,
inline constexpr double kLongWork = 300.0;
/// and of work in small pieces, with a heartbeat before each.
inline constexpr double kPieceOfWork = 60.0;

/// A step that has just been made, or to which a rollback has led.
struct StepEnd {
  int64_t step = 0;
  bool epoch_ended = false;
};

/// Work between two steps. TrainingRun keeps them in one list and asks each in that order, so that
/// a duty is due by what those before it have done. Anything that may take longer than a step is
/// one of them: ddp-run would take a rank for hung that broke the promise of its steps.
struct Duty {
  Phase phase;     ///< That the heartbeats report meanwhile.
  double promise;  ///< Seconds until the next heartbeat, at least.
  bool main_only;  ///< Rank 0 does it. Where others know that it is due, they expect the delay.
  std::function<bool(const StepEnd&)> due;
  std::function<void(const StepEnd&)> work;
};

}  // namespace ddp::train
