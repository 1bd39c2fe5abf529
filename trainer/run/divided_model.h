// What sharding needs to know of a model: its units, around which weights come and go.
#pragma once

#include <memory>

#include "trainer/optim/optimizer.h"
#include "trainer/parallel/collectives/process_group.h"
#include "trainer/parallel/strategy/fully_sharded.h"
#include "trainer/parallel/strategy/zero.h"
#include "trainer/task/task.h"

namespace ddp::train {

/// For distributed_config.strategy=zero3: every rank keeps only shards of the model. Divides the
/// parameters of the task's model and collects those of each ModelUnit around its uses:
/// Task::parameters(), frozen ones included, then those that the model has besides, such as the
/// weights below adapters. The model must not be used after what is returned has gone. `trained`:
/// some of its parameters. `averaged_over` as in FullyShardedDataParallel.
std::unique_ptr<FullyShardedDataParallel> divide_model(Task& task, const TrainedParameters& trained,
                                                       ProcessGroup& group, int averaged_over,
                                                       FirstValues values);

/// Lets weights that are shared after an update come in below the next forward pass, unit by unit.
/// The model must not be used after `shards` has gone.
void overlap_gather_with_forward(torch::nn::Module& model, ZeroDataParallel& shards);

}  // namespace ddp::train
