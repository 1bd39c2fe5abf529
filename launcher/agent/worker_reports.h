// What the agent reports about its workers: failures, current status, how they ended.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/restart_rules.h"
#include "launcher/base/run_result.h"
#include "launcher/base/states.h"
#include "launcher/base/worker.h"
#include "launcher/process/process_runner.h"
#include "launcher/rendezvous/restart_policy.h"
#include "launcher/report/job_status.h"

namespace ddp::launch {

/// With its last heartbeat, seen now.
ProcessFailure failure_of(const Worker& worker, ProcessRunner& processes);

/// A failure of something else that the round depends on, described by `what`.
ProcessFailure failure_without_worker(ExitStatus exit, std::string what,
                                      const ProcessRunner& processes);

/// "silent for 5.0 s, state T (stopped); last heartbeat: step=3".
std::string hang_text(const ProcessFailure& failure);

/// What other nodes need to report these failures: the last output and the error file's text.
std::vector<ProcessFailure> told_in_full(std::vector<ProcessFailure> failures,
                                         const ProcessRunner& processes);

/// The job's failures, in which this node's are replaced by `own`, which say more.
std::vector<ProcessFailure> with_details(std::vector<ProcessFailure> of_job,
                                         const std::vector<ProcessFailure>& own);

/// Workers that were told to stop but, by their error files, failed on their own before `seen`;
/// probable cause first. Marks them as failed.
std::vector<ProcessFailure> earlier_failures(std::vector<Worker>& workers,
                                             const ProcessFailure& seen, ProcessRunner& processes);

/// For a job ended by a signal: Preempted if all workers had saved their state or finished.
Outcome how_interrupted(const RestartRules& rules, const std::vector<Worker>& workers);

std::vector<WorkerStatus> worker_statuses(const WorkerGroup& group, ProcessRunner& processes);

/// The workers of the last round with their times.
std::vector<Worker> final_workers(const WorkerGroup& group, Clock::time_point job_began,
                                  const ProcessRunner& processes);

}  // namespace ddp::launch
