// How many micro-batches make up one optimizer step, and whose they are: a pure function, so that
// another number of ranks takes the same samples in the same order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/config/config.h"
#include "trainer/snapshot/snapshot_meta.h"

namespace ddp::train {

struct BatchPlan {
  int64_t micro_batches = 1;  ///< Per optimizer step, all ranks together.
  std::string note;           ///< One line for the log where the user should know; else empty.

  /// Micro-batches of one rank: g = rank, rank + world_size, ... below micro_batches.
  int64_t of_rank(int rank, int world_size) const {
    return (micro_batches - rank + world_size - 1) / world_size;
  }
};

/// global_batch_size where it is given; else, when it, batch_size and grad_accumulation_steps are
/// what they were, as many as the snapshot's run had, whatever the number of copies; else
/// grad_accumulation_steps of each copy. Every copy gets one at least: throws UserError when a
/// given global_batch_size is too small for that. `copies`: of the model, one on each rank unless
/// it is `divided` between ranks.
BatchPlan plan_batches(const TrainerConfig& config, int copies,
                       const std::optional<SnapshotMeta>& meta, bool divided = false);

}  // namespace ddp::train
