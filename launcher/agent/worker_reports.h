// What the agent tells of its workers: their failures, how they are now, how they ended.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launcher/agent/restart_policy.h"
#include "launcher/base/clock.h"
#include "launcher/base/restart_rules.h"
#include "launcher/base/run_result.h"
#include "launcher/base/states.h"
#include "launcher/base/worker.h"
#include "launcher/process/process_runner.h"
#include "launcher/report/job_status.h"

namespace ddp::launch {

/// With its last heartbeat, seen now.
ProcessFailure failure_of(const Worker& worker, ProcessRunner& processes);

/// Of something else without which the round cannot go on: `what` says what.
ProcessFailure failure_without_worker(ExitStatus exit, std::string what,
                                      const ProcessRunner& processes);

/// "silent for 5.0 s, state T (stopped); last heartbeat: step=3".
std::string hang_text(const ProcessFailure& failure);
/// "2.5 s".
std::string seconds_text(std::chrono::milliseconds time);
/// "rank 0 (local rank 0, pid 100): killed by SIGKILL; restart 1 of 3 in 2 s".
std::string restart_text(const ProcessFailure& cause, const RestartVerdict& verdict,
                         int max_restarts);

/// Workers that were told to stop but had failed by themselves before `seen`, as their error files
/// say, the probable cause first. They are marked as failed.
std::vector<ProcessFailure> earlier_failures(std::vector<Worker>& workers,
                                             const ProcessFailure& seen, ProcessRunner& processes);

/// Of a job that a signal has ended: Preempted when all workers have saved their state or were
/// done.
Outcome how_interrupted(const RestartRules& rules, const std::vector<Worker>& workers);

std::vector<WorkerStatus> worker_statuses(const WorkerGroup& group, ProcessRunner& processes);

/// The workers of the last round with their times.
std::vector<Worker> final_workers(const WorkerGroup& group, Clock::time_point job_began,
                                  const ProcessRunner& processes);

}  // namespace ddp::launch
