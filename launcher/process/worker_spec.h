// How one process is started.
#pragma once

#include <string>
#include <vector>

#include "launcher/base/command.h"
#include "launcher/logs/stream_plan.h"

namespace ddp::launch {

/// One process to start.
struct WorkerSpec {
  int local_rank = 0;
  Command command;
  Environment environment;
  WorkerStreams streams;
  bool inherits_stdin = true;  // else it reads end of file
  std::string heartbeat_file;  // empty: none
  std::vector<int> cpus;       // it may run on; empty: same as ddp-run
  int kept_descriptor = -1;    // also open in it, under the same number; -1: none
  bool steps_back = false;     // it runs at a lower CPU priority than ddp-run
};

}  // namespace ddp::launch
