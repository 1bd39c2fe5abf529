// Connects sharding to a model: weights are gathered before each unit and freed after it.
#pragma once

#include <memory>

#include "trainer/optim/optimizer.h"
#include "trainer/parallel/collectives/process_group.h"
#include "trainer/parallel/strategy/fully_sharded.h"
#include "trainer/parallel/strategy/zero.h"
#include "trainer/task/task.h"

namespace ddp::train {

/// For distributed_config.strategy=zero3: every rank keeps only shards of the model. Divides the
/// parameters of the task's model and gathers those of each ModelUnit for each use:
/// Task::parameters(), frozen ones included, then the model's other parameters, such as the weights
/// below adapters. The model must not be used after the result is destroyed. `trained`: some of its
/// parameters. `averaged_over` as in FullyShardedDataParallel.
std::unique_ptr<FullyShardedDataParallel> divide_model(Task& task, const TrainedParameters& trained,
                                                       ProcessGroup& group, int averaged_over,
                                                       FirstValues values);

/// Overlaps the gathering of updated weights with the next forward pass, unit by unit. The model
/// must not be used after `shards` is destroyed.
void overlap_gather_with_forward(torch::nn::Module& model, ZeroDataParallel& shards);

}  // namespace ddp::train
