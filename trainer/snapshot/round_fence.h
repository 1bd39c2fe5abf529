// Identifies the job and round that a process belongs to (launcher/worker_contract.h).
#pragma once

#include <cstdint>
#include <string>

namespace ddp::train {

/// Only the newest round of a job may write. Rounds of different jobs, and processes
/// without a launcher, cannot be compared: a restarted job begins with small epochs.
struct RoundFence {
  std::string job;    ///< DDP_ROUND_JOB; "": none.
  int64_t epoch = 0;  ///< DDP_ROUND_EPOCH.

  static RoundFence of_environment();
  /// Whether a process of this round must yield to one of `other`.
  bool is_behind(const RoundFence& other) const {
    return !job.empty() && job == other.job && epoch < other.epoch;
  }
};

}  // namespace ddp::train
