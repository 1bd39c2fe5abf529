// The agent process, from the fork to its exit code.
#pragma once

#include "launcher/cli/launch_config.h"
#include "launcher/plan/job_plan.h"
#include "launcher/process/signal_mailbox.h"
#include "launcher/result_writer.h"

namespace ddp::launch {

/// Runs the job to its end, writes and prints its result, and returns ddp-run's exit code.
/// `guardian_pipe` reports end-of-file when the guardian dies. Throws LaunchError if ddp-run itself
/// fails. Empties `plan.folder` if its disk blocks: nothing may access it any more.
int run_agent(const LaunchConfig& config, JobPlan& plan, const SignalMailbox& signals,
              int guardian_pipe, ResultWriter& results);

}  // namespace ddp::launch
