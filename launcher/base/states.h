// States of a job, of a worker and of a run, and their names in JSON, metrics and events.
#pragma once

namespace ddp::launch {

/// What the agent is doing.
enum class Phase {
  Running,   // nothing is wrong
  Leaving,   // a worker was preempted and has saved: the others are about to end, too
  Dumping,   // a worker hangs, its stacks are being written
  Stopping,  // workers were asked to stop, the grace period runs
  Killing,   // SIGKILL was sent
  Delaying,  // nothing runs, the next round is due at the deadline
};

enum class WorkerState {
  Running,
  Succeeded,
  Failed,
  Stopped,  // ended after we had told it to
};

/// How a run has ended.
enum class Outcome {
  Succeeded,
  Failed,
  Preempted,  // the workers have saved their state and want to be started again later
  Interrupted,
  LauncherGone,
};

/// "running", "dumping stacks", ...
const char* name_of(Phase phase);
/// "running", "succeeded", "failed" or "stopped".
const char* name_of(WorkerState state);
/// "succeeded", "failed", "preempted", "interrupted" or "launcher killed".
const char* name_of(Outcome outcome);

/// torchelastic's names in its events.
const char* event_name(WorkerState ended);
const char* event_name(Outcome outcome);

}  // namespace ddp::launch
