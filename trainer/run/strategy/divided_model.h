// Divides a model's parameters between the ranks that hold the same part of it.
#pragma once

#include <memory>
#include <vector>

#include "trainer/config/distributed_config.h"
#include "trainer/optim/optimizer.h"
#include "trainer/parallel/collectives/process_group.h"
#include "trainer/parallel/strategy/sharded_data_parallel.h"
#include "trainer/task/task.h"

namespace ddp::train {

/// A model as this rank holds it.
struct DividedModel {
  /// The shards', or one that synchronizes nothing. The task's model must not be used after it is
  /// destroyed.
  std::unique_ptr<GradientSync> sync;
  ShardedDataParallel* shards = nullptr;  ///< `sync`, if ranks hold shards.
  TrainedParameters updated;         ///< The parameters, or shards of them, that this rank updates.
  std::vector<NamedTensor> weights;  ///< "model.*" of snapshots; not of averages in use.
};

/// Divides the model of `task` as distributed_config.strategy requires; ddp, or a single rank, does
/// not. Under zero3 every rank keeps only shards, and those of a ModelUnit are gathered for each
/// use: of Task::parameters(), frozen ones included, and of the model's other parameters, such as
/// the weights below adapters. Under zero1 and zero2 the gathering of updated weights overlaps the
/// next forward pass, unit by unit, unless the model is cut into stages. `trained`: of the task's
/// parameters. `averaged_over` as in ZeroDataParallel::Options. A collective of `group`.
DividedModel divide_model(Task& task, TrainedParameters trained, ProcessGroup& group,
                          const DistributedConfig& config, int averaged_over, FirstValues values);

}  // namespace ddp::train
