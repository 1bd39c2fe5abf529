// A console that takes no more output (Ctrl-S, a pager, a reader that is stopped) and the workers
// that wait for it: these do not hang.
#pragma once

#include <sys/types.h>

namespace ddp::launch {

/// Whether ddp-run's stdout or stderr takes nothing now.
bool console_is_stalled();

/// Whether a thread of this process or of a descendant is blocked in a write to ddp-run's stdout or
/// stderr. True as well where the kernel hides what its threads do.
bool waits_for_console(pid_t pid);

}  // namespace ddp::launch
