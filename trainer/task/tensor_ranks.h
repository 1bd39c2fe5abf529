// The collectives of ranks that share layers, by a process group.
#pragma once

#include "trainer/model/blocks/tensor_parallel.h"
#include "trainer/parallel/collectives/process_group.h"

namespace ddp::train {

/// `group` outlives what is returned, and has more than one rank.
TensorRanksPtr make_tensor_ranks(ProcessGroup& group, bool divides_sequence);

}  // namespace ddp::train
