#include "launcher/base/run_result.h"

#include <algorithm>
#include <csignal>

#include "launcher/worker_contract.h"

namespace ddp::launch {

bool has_failed(const RunResult& result) {
  const bool may_have = result.outcome == Outcome::Failed || result.outcome == Outcome::Interrupted;
  return may_have && !result.failures.empty();
}

bool is_explained_usage_error(const RunResult& result) {
  if (result.outcome != Outcome::Failed || result.failures.empty()) return false;
  const auto& failures = result.failures;
  // One rank speaks for all.
  const bool explained = std::any_of(failures.begin(), failures.end(), [](const auto& failure) {
    return failure.host.empty() && !failure.last_stderr.empty();
  });
  return explained && failures.front().hang.empty() &&
         meaning_of(result.program, failures.front().exit) == ExitMeaning::Usage;
}

int exit_code(const RunResult& result) {
  switch (result.outcome) {
    case Outcome::Succeeded:
      return kExitDone;
    case Outcome::GuardianGone:
      return kExitSignalBase + SIGKILL;
    case Outcome::Preempted:
      return kExitPreempted;
    case Outcome::Interrupted:
      return kExitSignalBase + result.signal;
    case Outcome::Failed:
      break;
  }
  if (result.failures.empty()) return kExitFailed;
  const ProcessFailure& cause = result.failures.front();
  if (cause.exit.signal == 0) return cause.exit.code;
  return cause.is_worker() ? kExitSignalBase + cause.exit.signal : kExitFailed;
}

}  // namespace ddp::launch
