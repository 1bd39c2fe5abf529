// Forks and executes one worker, nothing else: no waiting, no bookkeeping.
#pragma once

#include <sys/types.h>

#include "launcher/process/worker_spec.h"

namespace ddp::launch {

/// A forked process whose exec is not confirmed yet.
struct PendingSpawn {
  pid_t pid = 0;
  int exec_pipe = -1;  // carries errno if exec fails, closes if it succeeds
};

/// The child's stdin, stdout and stderr; -1: ours.
struct WorkerStdio {
  int in = -1;
  int out = -1;
  int err = -1;
};
void close_stdio(WorkerStdio& stdio);

/// The child gets its own session and process group, default signal dispositions, an empty mask, no
/// descriptors except 0, 1, 2 and the spec's, and dies with the calling thread. Throws LaunchError
/// if fork fails.
PendingSpawn begin_spawn(const WorkerSpec& spec, const WorkerStdio& stdio,
                         bool keep_hangup_ignored);

/// Waits for exec; returns 0 or its errno. Closes the pipe. Without a pipe: 0.
int finish_spawn(PendingSpawn& pending);

}  // namespace ddp::launch
