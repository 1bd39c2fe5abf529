// Plans how many micro-batches make up an optimizer step and which rank takes which: a pure
// function, so that any number of ranks takes the same samples in the same order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/config/trainer_config.h"
#include "trainer/snapshot/snapshot_meta.h"

namespace ddp::train {

struct BatchPlan {
  int64_t micro_batches = 1;  ///< Per optimizer step, over all ranks.
  std::string note;           ///< One line for the log if the user should know; else empty.

  /// Micro-batches of one rank: g = rank, rank + world_size, ... below micro_batches.
  int64_t of_rank(int rank, int world_size) const {
    return (micro_batches - rank + world_size - 1) / world_size;
  }
};

/// Uses global_batch_size if given; else, if it, batch_size and grad_accumulation_steps are
/// unchanged, as many micro-batches as the snapshot's run, whatever the number of copies; else
/// grad_accumulation_steps per copy. Every copy gets at least one: throws UserError if the given
/// global_batch_size is too small for that. `copies`: of the model, one on each rank unless it is
/// `divided` among ranks.
BatchPlan plan_batches(const TrainerConfig& config, int copies,
                       const std::optional<SnapshotMeta>& meta, bool divided = false);

}  // namespace ddp::train
