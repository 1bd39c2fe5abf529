// What a worker that hangs is doing: what /proc tells at once, and the stacks, which a debugger
// writes.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "launcher/base/command.h"

namespace ddp::launch {

struct KernelState {
  char letter = '?';   // as in /proc/PID/stat: R, S, D, T, ...; '?': unknown
  std::string text{};  // "state T (stopped)"; empty: unknown
  bool dying = false;  // it is about to end, whatever is sent to it
};

/// "state T (stopped)", "state D (..., in nfs_wait)"; nothing when the process is gone.
KernelState kernel_state(pid_t pid);

/// One line per thread: id, name, state, where in the kernel.
std::string thread_table(pid_t pid);

/// The program that can write the stacks of `pid` to its stdout: py-spy for Python, gdb, eu-stack,
/// whichever `path` (as in $PATH) has. nullopt: none.
std::optional<Command> stack_tool(pid_t pid, const std::string& path);

}  // namespace ddp::launch
