// The text printed after the last round: survivors, the failure report, the table of workers.
#pragma once

#include <string>

#include "launcher/report/failure_report.h"

namespace ddp::launch {

struct FinalReportOptions {
  ReportContext context{};
  bool shows_all_ranks = true;  // every rank's output reached the console
  bool summary = false;         // --summary: the table of workers, whatever happened
};

/// Returns whole lines; empty if there is nothing to report.
std::string final_report(const RunResult& result, const FinalReportOptions& options);

}  // namespace ddp::launch
