// Names of states, as JSON, metrics and events tell them.
#pragma once

#include "launcher/agent/agent_policy.h"
#include "launcher/base/worker.h"

namespace ddp::launch {

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
