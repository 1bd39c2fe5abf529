// Which failure came first, and how it is told: at most 30 lines, root cause first.
#pragma once

#include <string>
#include <vector>

#include "launcher/base/worker.h"

namespace ddp::launch {

/// Failures that were seen in one wake-up, the probable cause first: deaths by signal, then error
/// files by their age, then ranks. (A worker that loses its peer fails after it, never before.)
void order_failures(std::vector<ProcessFailure>& batch);
/// Adds failures of workers that were dying already when the ones before them were seen, in the
/// same order but for the ranks: of equals the one that was seen first comes first.
void add_simultaneous(std::vector<ProcessFailure>& failures,
                      const std::vector<ProcessFailure>& batch);

/// Somebody wrote this error file before the failed worker wrote its own; false when one of the two
/// has none. Who loses a peer may be gone before the kernel has taken that peer apart.
bool wrote_earlier(const std::string& error_file, const ProcessFailure& failure);

/// "exit code 7", "killed by SIGKILL", "hangs" or "hangs, waiting in all_reduce".
std::string describe(const ProcessFailure& failure);
std::string describe_exit(const ExitStatus& exit);
/// What the workers of the next round are told, see kLastFailure in worker_contract.h.
std::string failure_json(const ProcessFailure& failure, int attempt);
/// What usually leads to that exit; may be empty.
std::string likely_cause(const ExitStatus& exit);

struct ReportContext {
  std::string host;
  int world_size = 1;
  int stderr_lines = 18;  // of the rank that failed first
  std::string logs;       // folder of the run; empty: nothing is kept
};

/// The whole report, with a newline at the end of each line; `result.failures` must not be empty.
std::string failure_report(const RunResult& result, const ReportContext& context);

/// The exit code of ddp-run.
int exit_code(const RunResult& result);

}  // namespace ddp::launch
