// Runs that many tests begin with or compare theirs with.
#pragma once

#include <string>

#include "tests/e2e/job.h"

namespace ddp::test {

/// Runs `options` in `place`, which must succeed and leave the same files each time. The first test
/// of a build that asks for it does; the others get a copy of what it has left there. Returns what
/// it printed.
std::string run_once(const Workspace& place, const ChildOptions& options);

/// A finished run of the workspace's configuration without any accident, which most tests of kills
/// and faults compare theirs with.
struct Unbroken : Workspace {
  /// Under ddp-run; 0 ranks: one process without it.
  explicit Unbroken(int ranks);

  std::string out;  ///< What it printed.
};

}  // namespace ddp::test
