// The agent's plan: the command line resolved on this machine.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "launcher/base/command.h"
#include "launcher/base/restart_rules.h"
#include "launcher/base/worker.h"
#include "launcher/cli/launch_config.h"
#include "launcher/hang/hang_rules.h"
#include "launcher/plan/preflight.h"
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
  std::chrono::milliseconds exit_grace{};  // --exit-grace; 0: none
  int stdin_rank = 0;                      // the only one that reads ddp-run's standard input
  RunFolder folder;
  RestartRules restarts;
  bool standby_workers = false;  // --warm-spares
  bool elastic = false;          // nodes may join and leave, which also restarts the group
  HangRules hangs;
  std::optional<Preflight> preflight{};
  LogOptions logs;
  std::string host;
  pid_t launcher = 0;                  // the process that the user started
  std::vector<std::vector<int>> cpus;  // by local rank; empty: all of ddp-run's
  EventLog events;
};

/// Plans everything except folder and events. Throws LaunchError if this machine cannot run the
/// job: too few GPUs, PROGRAM not found.
JobPlan plan_job(const LaunchConfig& config);

/// Returns a worker of `group`'s current round, not started yet.
Worker plan_worker(const JobPlan& plan, const WorkerGroup& group, int local_rank);
/// Returns how to start it.
WorkerSpec worker_spec(const JobPlan& plan, const WorkerGroup& group, const Worker& worker);
/// Returns how to start its standby worker, without what only the next round determines.
WorkerSpec standby_spec(const JobPlan& plan, const WorkerGroup& group, const Worker& worker);

}  // namespace ddp::launch
