// What distributed_config.strategy=auto means in a run.
#pragma once

#include <optional>
#include <string>

#include "trainer/parallel/collectives/process_group.h"
#include "trainer/parallel/device/device_plan.h"
#include "trainer/snapshot/snapshot_meta.h"
#include "trainer/task/task.h"

namespace ddp::train {

struct StrategyChoice {
  Strategy strategy = Strategy::kDdp;
  std::string why;  ///< For the log.
};

/// What the run of `meta` has used, if it resumes with as many ranks: memory that happens to be
/// free today decides nothing then. Otherwise what `trainer plan` would choose for the group's
/// machines: the smallest memory of any rank counts. Changes nothing of batches and the model. A
/// collective; rank 0's choice is that of all.
StrategyChoice choose_strategy(const Config& config, const Task& task, const DevicePlan& plan,
                               const DistEnv& env, const std::optional<SnapshotMeta>& meta,
                               ProcessGroup& group);

}  // namespace ddp::train
