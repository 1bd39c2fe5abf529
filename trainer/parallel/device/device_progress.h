// Detects whether this rank's GPU is still computing or waiting for other ranks in a collective:
// distinguishes a rank whose kernel never ends from those that wait for it.
#pragma once

#include "trainer/parallel/device/device_wait.h"

namespace ddp::train {

/// Tracks the work that the training thread queues: parts of this rank alone, each followed by
/// collectives. Process-wide; may be called from any thread.
class DeviceProgress {
 public:
  /// Marks the end of work on the current stream of `device` that needs no rank beyond those that
  /// earlier collectives waited for. No-op for CPUs.
  static void own_work_ends_here(torch::Device device);
  /// Sets the mark that the device reaches once the collectives after that are over.
  static void collectives_end_at(const ReadyEvent& mark);
  /// Whether the device is executing work of this rank alone; false if nothing was marked. Throws
  /// c10::Error if the device has failed.
  static bool at_own_work();
};

}  // namespace ddp::train
