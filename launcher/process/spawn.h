// fork and exec of one worker, nothing else: no waiting, no bookkeeping.
#pragma once

#include <sys/types.h>

#include "launcher/process/worker_spec.h"

namespace ddp::launch {

/// A started process whose exec is still to be confirmed.
struct PendingSpawn {
  pid_t pid = 0;
  int exec_pipe = -1;  // says errno when exec fails, just closes when it succeeds
};

/// What the child gets as stdin, stdout and stderr; -1: ours.
struct WorkerStdio {
  int in = -1;
  int out = -1;
  int err = -1;
};
void close_stdio(WorkerStdio& stdio);

/// The child gets a session and process group of its own, default signal dispositions, an empty
/// mask, no descriptor but 0, 1 and 2, and dies with the calling thread. Throws LaunchError when
/// fork fails.
PendingSpawn begin_spawn(const WorkerSpec& spec, const WorkerStdio& stdio,
                         bool keep_hangup_ignored);

/// Waits for exec; 0, or the errno that it failed with. Closes the pipe.
int finish_spawn(PendingSpawn& pending);

}  // namespace ddp::launch
