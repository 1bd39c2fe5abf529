// Sums partial gradients of ranks that share layers.
#pragma once

#include <functional>

#include "trainer/parallel/mesh/mesh.h"
#include "trainer/parallel/strategy/sharded_data_parallel.h"
#include "trainer/task/task.h"

namespace ddp::train {

/// Returns what sums Task::partial_gradients() over the ranks that share layers, after the backward
/// passes of a step: Task::complete_gradients(), or its equal, bit for bit, for gradients of which
/// each rank has `shards` (null: whole ones). All arguments outlive it. A collective of the stage's
/// ranks; no host sync.
std::function<void()> sum_of_partial_gradients(Task& task, const ShardedDataParallel* shards,
                                               const Mesh& mesh);

}  // namespace ddp::train
