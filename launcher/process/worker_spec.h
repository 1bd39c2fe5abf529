// How to start one process: a plain struct.
#pragma once

#include <string>
#include <vector>

#include "launcher/base/command.h"
#include "launcher/logs/stream_plan.h"

namespace ddp::launch {

struct WorkerSpec {
  int local_rank = 0;
  Command command;
  Environment environment;
  WorkerStreams streams;
  bool inherits_stdin = true;  // otherwise it reads end-of-file
  std::string heartbeat_file;  // empty: none
  std::vector<int> cpus;       // its affinity; empty: ddp-run's
  int kept_descriptor = -1;    // a further descriptor, inherited under the same number; -1: none
  bool low_priority = false;   // runs at a lower CPU priority than ddp-run
};

}  // namespace ddp::launch
