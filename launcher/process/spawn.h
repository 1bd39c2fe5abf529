// Forks and executes one worker, nothing else: no waiting, no bookkeeping.
#pragma once

#include <sys/types.h>

#include "launcher/base/system/descriptors.h"
#include "launcher/process/worker_spec.h"

namespace ddp::launch {

/// A forked process whose exec is not confirmed yet.
struct PendingSpawn {
  pid_t pid = 0;
  Descriptor exec_pipe{};  // carries errno if exec fails, closes if it succeeds
};

/// The child's stdin, stdout and stderr, not owned; -1: ddp-run's own.
struct WorkerStdio {
  int in = -1;
  int out = -1;
  int err = -1;
};

/// Forks a child with its own session and process group, default signal dispositions, an empty
/// signal mask, and no descriptors except 0, 1, 2 and the spec's. It dies with the calling thread.
/// Throws LaunchError if fork fails.
PendingSpawn begin_spawn(const WorkerSpec& spec, const WorkerStdio& stdio,
                         bool keep_hangup_ignored);

/// Waits for exec and closes the pipe; returns 0 or exec's errno, and 0 if there is no pipe.
int finish_spawn(PendingSpawn& pending);

}  // namespace ddp::launch
