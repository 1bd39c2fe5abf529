// Implements the collectives of ranks that share layers with a process group.
#pragma once

#include "trainer/model/blocks/tensor_parallel.h"
#include "trainer/parallel/collectives/process_group.h"

namespace ddp::train {

/// `group` must outlive the result, and has more than one rank.
TensorRanksPtr make_tensor_ranks(ProcessGroup& group, bool divides_sequence);
/// The same for ranks that share experts alone.
TensorRanksPtr make_expert_ranks(ProcessGroup& group);

}  // namespace ddp::train
