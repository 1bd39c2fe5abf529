// Shows what a hung worker is doing: its state from /proc, and stacks from a debugger.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "launcher/base/command.h"

namespace ddp::launch {

struct KernelState {
  char letter = '?';   // as in /proc/PID/stat: R, S, D, T, ...; '?': unknown
  std::string text{};  // "state T (stopped)", "state D (..., in nfs_wait)"; empty: unknown
  bool dying = false;  // exiting already
  long switches = 0;   // how often it has given up a CPU: unchanged while one sleep lasts
};

/// Reads the state of a process; its text is empty if the process has exited.
KernelState kernel_state(pid_t pid);

/// Returns the process's state and a table with one line per thread: id, name, state, kernel
/// function.
std::string thread_table(pid_t pid);

/// Returns a command that prints the stacks of `pid`, Python's included: py-spy (for Python only),
/// gdb, or eu-stack (which finds no Python), whichever is found first on `path` (as in $PATH);
/// nullopt if there is none.
std::optional<Command> stack_tool(pid_t pid, const std::string& path);

/// Whether `pid` runs Python, and the stacks that stack_tool()'s command has printed lack its
/// frames for want of py-spy.
bool lacks_python_frames(pid_t pid, const std::string& path, const std::string& stacks);

}  // namespace ddp::launch
