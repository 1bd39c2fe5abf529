// Something that rank 0 does before the other ranks may leave.
#pragma once

#include <chrono>

#include "trainer/parallel/collectives/process_group.h"

namespace ddp::train {

/// Rank 0 announces that it has done it; the other ranks wait until then, at most `patience`.
void announce(const StorePart& part, bool is_main, std::chrono::seconds patience);

}  // namespace ddp::train
