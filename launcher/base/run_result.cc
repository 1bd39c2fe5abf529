#include "launcher/base/run_result.h"

#include <algorithm>
#include <csignal>

#include "launcher/worker_contract.h"

namespace ddp::launch {

bool has_failed(const RunResult& result) {
  const bool may_have =
      result.outcome == Outcome::kFailed || result.outcome == Outcome::kInterrupted;
  return may_have && !result.failures.empty();
}

bool is_explained_usage_error(const RunResult& result) {
  if (result.outcome != Outcome::kFailed || result.failures.empty()) return false;
  const auto& failures = result.failures;
  // One rank speaks for all.
  const bool explained = std::any_of(failures.begin(), failures.end(), [](const auto& failure) {
    return failure.host.empty() && !failure.last_stderr.empty();
  });
  return explained && failures.front().hang.empty() &&
         meaning_of(result.program, failures.front().exit) == ExitMeaning::kUsage;
}

int exit_code(const RunResult& result) {
  switch (result.outcome) {
    case Outcome::kSucceeded:
      return kExitDone;
    case Outcome::kGuardianGone:
      return kExitSignalBase + SIGKILL;
    case Outcome::kPreempted:
      return kExitPreempted;
    case Outcome::kInterrupted:
      return kExitSignalBase + result.signal;
    case Outcome::kFailed:
      break;
  }
  if (result.failures.empty()) return kExitFailed;
  const ProcessFailure& cause = result.failures.front();
  if (cause.exit.signal == 0) return cause.exit.code;
  return cause.is_worker() ? kExitSignalBase + cause.exit.signal : kExitFailed;
}

}  // namespace ddp::launch
