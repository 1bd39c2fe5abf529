// What the agent reports about its workers: failures, current status, exits.
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

/// Describes the failure of a worker, with its last heartbeat and the current time.
ProcessFailure failure_of(const Worker& worker, ProcessRunner& processes);

/// Describes the failure of anything else that the round depends on.
ProcessFailure failure_without_worker(ExitStatus exit, std::string what,
                                      const ProcessRunner& processes);

/// "silent for 5.0 s, state T (stopped); last heartbeat: step=3".
std::string hang_text(const ProcessFailure& failure);

/// Adds what other nodes need to report these failures: the last output and the error file's text.
std::vector<ProcessFailure> with_output(std::vector<ProcessFailure> failures,
                                        const ProcessRunner& processes);

/// Returns the job's failures with this node's replaced by `own`, which have more details.
std::vector<ProcessFailure> with_details(std::vector<ProcessFailure> of_job,
                                         const std::vector<ProcessFailure>& own);

/// Finds workers that were asked to stop but, according to their error files, failed on their own
/// before `seen`, and marks them as failed, whatever ended them. Returns their failures, probable
/// cause first.
std::vector<ProcessFailure> earlier_failures(std::vector<Worker>& workers,
                                             const ProcessFailure& seen, ProcessRunner& processes);

/// Returns the outcome of a job that a signal ended: Preempted if all workers saved their state or
/// finished, else Interrupted.
Outcome how_interrupted(const RestartRules& rules, const std::vector<Worker>& workers);

std::vector<WorkerStatus> worker_statuses(const WorkerGroup& group, ProcessRunner& processes);

/// Returns the workers of the last round with their times relative to the start of the job.
std::vector<Worker> final_workers(const WorkerGroup& group, Clock::time_point job_began,
                                  const ProcessRunner& processes);

}  // namespace ddp::launch
