// Runs the collectives of data-parallel and sharded training and the messages of pipelines on known
// numbers, checks and times them (`trainer doctor`).
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/parallel/collectives/process_group.h"

namespace ddp::train {

struct CollectiveReport {
  std::string name;        ///< broadcast, ..., all_gather; reduce_scatter, all_gather_rows;
                           ///< send_receive: each rank to the next one
  int64_t bytes = 0;       ///< Size of one rank's tensor; for tables, of all rows.
  bool correct = false;    ///< On every rank.
  double median_us = 0.0;  ///< Over several runs, on the slowest rank.
};

/// Runs every collective on float32 tensors of each size in `sizes` (bytes) on `device`. All ranks
/// must call it with the same arguments, and all of them get the same result. `group` must have a
/// c10d group.
std::vector<CollectiveReport> check_collectives(ProcessGroup& group, torch::Device device,
                                                const std::vector<int64_t>& sizes);

}  // namespace ddp::train
