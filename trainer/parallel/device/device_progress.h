// Detects whether this rank's GPU is still computing or waiting for other ranks in a collective:
// distinguishes a rank whose kernel never ends from those that wait for it.
#pragma once

#include "trainer/parallel/device/device_wait.h"

namespace ddp::train {

/// Of the work that the training thread queues, in order: parts of this rank alone, each followed
/// by collectives. One per process; from any thread.
class DeviceProgress {
 public:
  /// What the present queue of `device` holds up to here needs no rank beyond those that earlier
  /// collectives waited for. Nothing for CPUs.
  static void own_work_ends_here(torch::Device device);
  /// The device comes to `mark` once the collectives after that are over.
  static void collectives_end_at(const ReadyEvent& mark);
  /// Whether the device is at work of this rank alone; false if nothing was marked. Throws
  /// c10::Error for what went wrong there.
  static bool at_own_work();
};

}  // namespace ddp::train
