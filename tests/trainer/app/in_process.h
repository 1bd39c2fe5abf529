// trainer in this process, for what it refuses: a process of its own would load LibTorch for each
// line that it prints.
#pragma once

#include <string>

#include "tests/e2e/job.h"

namespace ddp::test {

/// Runs a command of alone() or trainer() in its folder, as one process without a launcher. Returns
/// the exit code of trainer and in `err` the line that it would print; `out` stays empty, as the
/// output goes to the test's own.
Finished in_process(const ChildOptions& command);
/// As in_process(), and requires exit code 0.
void succeed_in_process(const ChildOptions& command);

/// One line that begins with "error:", names all of `said`, and the exit code of a user's mistake.
void check_refused(const Finished& run, const Words& said, int exit = 2);
/// The line of a command that is refused.
std::string refusal_of(const ChildOptions& command);

}  // namespace ddp::test
