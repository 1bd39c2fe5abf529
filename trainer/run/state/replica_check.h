// Whether the replicas of the training state, one on each rank, are still equal.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/optim/optimizer.h"
#include "trainer/parallel/collectives/process_group.h"

namespace ddp::train {

struct ReplicaDifference {
  std::string tensor;  ///< The first tensor that differs, in the order given.
  int rank = 0;        ///< The first rank whose bytes are not rank 0's.
};

/// Compares the bytes of the tensors by a digest of 64 bits each. A collective: all ranks get the
/// same answer. `tensors` has the same names and shapes on all ranks. `before_wait`: before the
/// ranks wait for each other.
std::optional<ReplicaDifference> find_difference(
    const std::vector<NamedTensor>& tensors, ProcessGroup& group,
    const std::function<void()>& before_wait = [] {});

}  // namespace ddp::train
