// What the agent is to do: the command line, as this machine lets it be.
#pragma once

#include <string>
#include <vector>

#include "launcher/base/command.h"
#include "launcher/base/restart_rules.h"
#include "launcher/base/worker.h"
#include "launcher/cli/launch_config.h"
#include "launcher/hang/hang_rules.h"
#include "launcher/plan/run_folder.h"
#include "launcher/plan/worker_env.h"
#include "launcher/process/worker_spec.h"
#include "launcher/report/event_log.h"

namespace ddp::launch {

struct JobPlan {
  Command command;
  Environment inherited;
  JobInfo job;
  std::chrono::milliseconds grace{30'000};
  RunFolder folder;
  RestartRules restarts;
  HangRules hangs;
  LogOptions logs;
  std::string host;
  std::vector<std::vector<int>> cpus;  // of each local rank; empty: all of ddp-run's
  EventLog events;
};

/// Everything but the folder and the events. Throws LaunchError when this machine cannot do it: too
/// few GPUs, PROGRAM not found.
JobPlan plan_job(const LaunchConfig& config);

/// One worker of the round that `group` is at, not started yet.
Worker plan_worker(const JobPlan& plan, const WorkerGroup& group, int local_rank);
/// How it is started.
WorkerSpec worker_spec(const JobPlan& plan, const WorkerGroup& group, const Worker& worker);

}  // namespace ddp::launch
