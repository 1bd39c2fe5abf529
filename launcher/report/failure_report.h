// The failure report of a run: at most 30 lines, root cause first.
#pragma once

#include <string>
#include <vector>

#include "launcher/base/run_result.h"
#include "launcher/base/worker.h"

namespace ddp::launch {

/// `format`: as for strftime.
std::string local_time(double unix_seconds, const char* format);

/// "exit code 7", "killed by SIGKILL (out of memory)", "hung" or "hung, waiting in all_reduce".
std::string describe(const ProcessFailure& failure);
/// DDP_LAST_FAILURE of the next round's workers; see kLastFailure in worker_contract.h.
std::string failure_json(const ProcessFailure& failure, int attempt);
/// Returns the usual cause of such an exit; may be empty.
std::string likely_cause(const ExitStatus& exit);

struct ReportContext {
  std::string host{};
  int world_size = 1;
  int stderr_lines = 18;  // of the rank that failed first
  std::string logs{};     // folder of the run; empty: not kept
  bool one_console =
      false;  // all nodes print to it, so only the failed rank's node reports the cause
  bool shows_all_ranks = true;  // every rank's output reached the console
  bool summary = false;         // --summary: the table of workers, whatever happened
};

/// Returns the report as whole lines; `result.failures` must not be empty.
std::string failure_report(const RunResult& result, const ReportContext& context);

/// Returns what is printed after the last round: survivors, the failure report, the table of
/// workers. Whole lines; empty if there is nothing to report.
std::string final_report(const RunResult& result, const ReportContext& context);

}  // namespace ddp::launch
