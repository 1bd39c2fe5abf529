// Detects workers that wait for a console which accepts no output (Ctrl-S, a pager, a stopped
// reader): they are not hung.
#pragma once

#include <sys/types.h>

namespace ddp::launch {

/// Returns whether a write to ddp-run's stdout or stderr would block.
bool console_is_stalled();

/// Returns whether a thread of the process or of a descendant is blocked in a write to ddp-run's
/// stdout or stderr; also true if the kernel hides what its threads do.
bool waits_for_console(pid_t pid);

}  // namespace ddp::launch
