// States of a job, of a worker and of a run, and their names in JSON, metrics and events.
#pragma once

namespace ddp::launch {

/// What the agent is doing.
enum class Phase {
  kChecking,   // no worker is running; this node's --preflight is
  kJoining,    // no worker is running; the nodes are agreeing on the next round
  kRunning,    // no failure so far
  kLeaving,    // a worker was preempted and saved; the others are about to exit
  kDumping,    // a worker hung; stacks are being dumped
  kStopping,   // workers were asked to stop; the grace period is running
  kKilling,    // SIGKILL was sent
  kLingering,  // for status only: Reported, and processes that outlived their workers have time
  kReported,   // no worker is running here; waiting for the verdict of all nodes
  kDelaying,   // nothing is running; the next round starts at the deadline
};

enum class WorkerState {
  kRunning,
  kSucceeded,
  kFailed,
  kStopped,  // exited after being asked to
};

/// How a run ended.
enum class Outcome {
  kSucceeded,
  kFailed,
  kPreempted,  // the workers saved their state and want to be restarted later
  kInterrupted,
  kGuardianGone,  // SIGKILL of the process that the user started
};

/// "running", "dumping stacks", ...
const char* name_of(Phase phase);
/// "running", "succeeded", "failed" or "stopped".
const char* name_of(WorkerState state);
/// "succeeded", "failed", "preempted", "interrupted" or "guardian killed".
const char* name_of(Outcome outcome);

/// torchelastic's names in its events.
const char* event_name(WorkerState ended);
const char* event_name(Outcome outcome);

}  // namespace ddp::launch
