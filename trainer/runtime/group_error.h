// A failure of the whole group, thrown by each rank and reported by one.
#pragma once

#include "trainer/runtime/error.h"

namespace ddp::train {

/// Found jointly and thrown by all ranks alike. The first rank of a node prints it.
class GroupError : public RunError {
 public:
  using RunError::RunError;
};

}  // namespace ddp::train
