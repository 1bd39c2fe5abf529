// What a worker that hangs is doing: what /proc tells at once, and the stacks, which a debugger
// writes.
#pragma once

#include <optional>
#include <string>

#include "launcher/base/worker.h"
#include "launcher/process/process_runner.h"

namespace ddp::launch {

/// "state T (stopped)", "state D (..., in nfs_wait)"; nothing when the process is gone.
KernelState kernel_state(pid_t pid);

/// One line per thread: id, name, state, where in the kernel.
std::string thread_table(pid_t pid);

/// The program that can write the stacks of `pid` to its stdout: py-spy for Python, gdb, eu-stack,
/// whichever `path` (as in $PATH) has. nullopt: none.
std::optional<Command> stack_tool(pid_t pid, const std::string& path);

}  // namespace ddp::launch
