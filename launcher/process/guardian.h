// The process that the user starts only guards: the agent, which starts the workers, is its child.
// Each of the two outlives the other's SIGKILL for as long as it takes to kill everything that was
// started. See README.md.
#pragma once

#include <functional>

#include "launcher/process/signal_mailbox.h"

namespace ddp::launch {

/// Runs `agent` in a child process that has a session of its own, so that no signal to our process
/// group reaches it, and returns its exit code; 128 + signal when it was killed, after everything
/// it had started was killed, too. The agent's argument is a descriptor that reports end-of-file
/// when this process is dead.
int run_guarded(const SignalMailbox& signals, const std::function<int(int launcher_pipe)>& agent);

}  // namespace ddp::launch
