// Connects sharding to a model: weights are gathered before each unit and freed after it.
#pragma once

#include <memory>

#include "trainer/config/config.h"
#include "trainer/layout/tensor_layout.h"
#include "trainer/optim/optimizer.h"
#include "trainer/parallel/collectives/process_group.h"
#include "trainer/parallel/strategy/fully_sharded.h"
#include "trainer/parallel/strategy/zero.h"
#include "trainer/task/task.h"

namespace ddp::train {

/// Divides `trained` between the ranks as distributed_config.strategy says; null for ddp, and on
/// one rank, which has nothing to divide. `averaged_over` as in ShardedDataParallel::Options.
std::unique_ptr<ZeroDataParallel> make_shards(const TrainedParameters& trained, ProcessGroup& group,
                                              const DistributedConfig& config, int averaged_over,
                                              FirstValues values);

/// Which elements of its logical tensor a shard holds. `layouts`: of the parameters, where ranks
/// divide the model as well.
TensorLayout layout_of_shard(const ShardedDataParallel& shards, const Shard& shard,
                             const TensorLayouts& layouts);

/// The shards of `trained` that this rank updates, in the groups of their parameters.
TrainedParameters shards_of(const TrainedParameters& trained, const ShardedDataParallel& shards,
                            const TensorLayouts& layouts);

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
