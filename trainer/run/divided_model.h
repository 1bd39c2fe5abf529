// A model of which every rank keeps only shards (distributed_config.strategy=zero3).
#pragma once

#include <memory>

#include "trainer/optim/optimizer.h"
#include "trainer/parallel/fully_sharded.h"
#include "trainer/parallel/process_group.h"
#include "trainer/task/task.h"

namespace ddp::train {

/// Divides the parameters of the task's model and collects those of each ModelUnit around its uses:
/// Task::parameters(), frozen ones included, then those that the model has besides, such as the
/// weights below adapters. The model must not be used after what is returned has gone. `trained`:
/// some of its parameters. `averaged_over` as in FullyShardedDataParallel.
std::unique_ptr<FullyShardedDataParallel> divide_model(Task& task, const TrainedParameters& trained,
                                                       ProcessGroup& group, int averaged_over,
                                                       FirstValues values);

}  // namespace ddp::train
