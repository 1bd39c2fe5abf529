// The run that most tests of kills and faults compare theirs with.
#pragma once

#include <string>

#include "tests/e2e/job.h"

namespace ddp::test {

/// A finished run of the workspace's configuration without any accident, in a folder of its own.
/// It is trained by the first test that needs it and copied for the others of the same build.
struct Unbroken : Workspace {
  /// Under ddp-run; 0 ranks: one process without it.
  explicit Unbroken(int ranks);

  std::string out;  ///< What it printed.
};

}  // namespace ddp::test
