// The process the user starts only guards its child, the agent, which starts the workers. If either
// is killed with SIGKILL, the other lives on until everything is killed. See README.md.
#pragma once

#include <functional>

#include "launcher/process/signal_mailbox.h"

namespace ddp::launch {

/// Runs `agent` in a child process with its own session, out of reach of signals to our process
/// group, and returns its exit code; if it was killed, 128 + signal, after killing everything it
/// started. The agent's argument is a descriptor that reports end-of-file when this process dies.
int run_guarded(const SignalMailbox& signals, const std::function<int(int guardian_pipe)>& agent);

}  // namespace ddp::launch
