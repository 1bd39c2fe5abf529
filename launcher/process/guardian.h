// The process the user starts only guards its child, the agent, which starts the workers. If either
// is killed with SIGKILL, the other survives until everything is killed. See README.md.
#pragma once

#include <functional>

#include "launcher/process/signal_mailbox.h"

namespace ddp::launch {

/// Runs `agent` in a child process with its own session, out of reach of signals to our process
/// group, and returns its exit code; if it was killed, 128 + signal, after killing everything it
/// started. The agent's argument is a descriptor that reports end-of-file when this process dies.
int run_guarded(const SignalMailbox& signals, const std::function<int(int guardian_pipe)>& agent);

/// Returns what `write` returns. Calls it in a process of its own, and returns false after a
/// second: a disk that blocks must not keep this process. As the other may outlive it, it has only
/// `stream` of the standard streams; -1: none. This process itself writes to a stream other than a
/// regular file, and waits for its reader.
bool aside(const std::function<bool()>& write, int stream = -1);

}  // namespace ddp::launch
