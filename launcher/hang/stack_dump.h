// What a hung worker is doing: its state from /proc, and stacks from a debugger.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "launcher/base/command.h"

namespace ddp::launch {

struct KernelState {
  char letter = '?';   // as in /proc/PID/stat: R, S, D, T, ...; '?': unknown
  std::string text{};  // "state T (stopped)"; empty: unknown
  bool dying = false;  // it is exiting, whatever signal is sent
};

/// "state T (stopped)", "state D (..., in nfs_wait)"; empty if the process is gone.
KernelState kernel_state(pid_t pid);

/// One line per thread: id, name, state, kernel function.
std::string thread_table(pid_t pid);

/// A command that writes the stacks of `pid` to stdout: py-spy (Python only), gdb or eu-stack, the
/// first found on `path` (as in $PATH). nullopt: none.
std::optional<Command> stack_tool(pid_t pid, const std::string& path);

}  // namespace ddp::launch
