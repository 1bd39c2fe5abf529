#include "launcher/report/final_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "launcher/report/run_record.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

// The table of many workers would bury the cause.
constexpr std::ptrdiff_t kLongestWithTable = 30;

std::string usage_error_line(const std::string& logs) {
  return fmt::format(
      "ddp-run: the job failed: trainer rejected its command line or configuration (exit code {}); "
      "see its message{}\n",
      kExitUsage, logs.empty() ? "" : "; logs: " + logs);
}

bool fits(const std::string& text, const RunResult& result) {
  const auto lines = std::count(text.begin(), text.end(), '\n') + std::ssize(result.workers) + 1;
  return std::ssize(result.workers) > 1 && lines <= kLongestWithTable;
}

}  // namespace

std::string final_report(const RunResult& result, const FinalReportOptions& options) {
  std::string text;
  for (const auto& survivor : result.survivors)
    text += fmt::format("error: {} could not be killed\n", survivor);
  if (result.outcome == Outcome::kPreempted) {
    text += fmt::format(
        "ddp-run: the workers were preempted and saved their state (exit code {}); rerun the same "
        "command to continue\n",
        kExitPreempted);
  }
  if (result.workers.empty() && !result.failures.empty() && !result.failures.front().is_worker())
    return text + fmt::format("error: {}\n", result.failures.front().cause);
  const bool explained = is_explained_usage_error(result) && options.shows_all_ranks;
  const bool reported = !explained && has_failed(result);
  if (explained) text += usage_error_line(options.context.logs);
  if (reported) text += failure_report(result, options.context);
  return options.summary || (reported && fits(text, result)) ? text + summary_table(result) : text;
}

}  // namespace ddp::launch
