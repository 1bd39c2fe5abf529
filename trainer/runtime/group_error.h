// A failure of the whole group, which each rank throws and one reports.
#pragma once

#include "trainer/runtime/error.h"

namespace ddp::train {

/// What all ranks have found together and throw alike. The first rank of a node prints it.
class GroupError : public RunError {
 public:
  using RunError::RunError;
};

}  // namespace ddp::train
