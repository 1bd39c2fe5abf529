// What a run does between two steps.
#pragma once

#include <cstdint>
#include <functional>

#include "trainer/health/phase.h"

namespace ddp::train {

/// Promised seconds to the next heartbeat: for work bounded by a disk, a device or model size,
inline constexpr double kLongWork = 300.0;
/// and for work in small pieces, with a heartbeat before each.
inline constexpr double kPieceOfWork = 60.0;

/// The step just finished, or the one that a rollback has returned to.
struct StepEnd {
  int64_t step = 0;
  bool epoch_ended = false;
};

/// Work between two steps. TrainingRun keeps duties in one list and asks each in that order, so a
/// duty may depend on what earlier ones have done. Anything that may take longer than a step is a
/// duty: ddp-run would consider a rank hung that broke the promise of its steps.
struct Duty {
  Phase phase;     ///< Reported by the heartbeats meanwhile.
  double promise;  ///< Seconds until the next heartbeat, at least.
  bool main_only;  ///< Only rank 0 performs it; ranks that know that it is due expect the delay.
  std::function<bool(const StepEnd&)> due;
  std::function<void(const StepEnd&)> work;
};

}  // namespace ddp::train
