#include "launcher/rendezvous/restart_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "launcher/base/run_result.h"
#include "launcher/base/text.h"
#include "launcher/report/failure_report.h"
#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kLongestProgress = 300;  // each round's message has it

int exit_value(const ExitStatus& exit) {
  return exit.signal != 0 ? kExitSignalBase + exit.signal : exit.code;
}

bool same_failure(const RoundEnd& a, const RoundEnd& b) {
  return a.rank == b.rank && exit_value(a.exit) == exit_value(b.exit) && a.progress == b.progress;
}

// A shell reports signal n as 128 + n; 255 is a program's exit(-1).
bool is_crash(const ExitStatus& exit) {
  const bool says_signal = exit.code > kExitSignalBase && exit.code < kExitSignalBase + NSIG;
  return exit.signal != 0 || says_signal || exit.code == kExitHang;
}

// Why this failure does not trigger a restart; empty if it does.
std::string final_reason(const RestartRules& rules, const ExitStatus& exit) {
  const int code = exit_value(exit);
  if (rules.final_codes.count(code) > 0)
    return fmt::format("exit code {} is final by --restart-policy", code);
  if (rules.retry_codes.count(code) > 0) return "";
  switch (meaning_of(rules.program, exit)) {
    case ExitMeaning::kPreempted:
      return fmt::format("exit code {} of trainer: preempted, state saved", code);
    case ExitMeaning::kFinal:
    case ExitMeaning::kUsage:
      return fmt::format("exit code {} of trainer: would fail again", code);
    case ExitMeaning::kNone:
      break;
  }
  if (rules.policy == RestartPolicy::kNever) return "--restart-policy=never";
  if (rules.policy == RestartPolicy::kOnCrash && !is_crash(exit))
    return fmt::format("--restart-policy=on-crash; exit code {} is not a crash", code);
  return "";
}

bool is_healthy(const RestartRules& rules, const RoundEnd& end) {
  return rules.healthy_after.count() > 0 && end.lived >= rules.healthy_after;
}

bool is_quick(const RestartRules& rules, const RoundEnd& end) {
  return end.lived < rules.quick && !is_healthy(rules, end);
}

}  // namespace

ProcessFailure job_failure(const std::string& cause) {
  return {.local_rank = ProcessFailure::kNoRank,
          .rank = ProcessFailure::kNoRank,
          .exit = {kExitFailed, 0},
          .cause = cause,
          .time = unix_seconds()};
}

RoundEnd round_end(const ProcessFailure& cause) {
  return {cause.rank, cause.exit, cause.lived, cause.heartbeat.substr(0, kLongestProgress)};
}

void RestartTally::add(const RestartRules& rules, RoundEnd end) {
  unhealthy = is_healthy(rules, end) ? 0 : unhealthy + 1;
  const bool again = same > 0 && same_failure(end, last);
  same = !is_quick(rules, end) ? 0 : again ? same + 1 : 1;
  quick = is_quick(rules, end) ? quick + 1 : 0;
  last = std::move(end);
}

std::chrono::milliseconds delay_after(const RestartRules& rules, int count) {
  if (count < 2) return std::chrono::milliseconds(0);
  return std::min(rules.longest_delay, rules.delay * (1 << std::min(count - 2, 16)));
}

bool is_preemption(const RestartRules& rules, const ExitStatus& exit) {
  return meaning_of(rules.program, exit) == ExitMeaning::kPreempted &&
         rules.retry_codes.count(kExitPreempted) == 0;
}

Outcome outcome_of(const RestartRules& rules, const std::vector<ProcessFailure>& failures) {
  if (failures.empty()) return Outcome::kSucceeded;
  const bool all = std::all_of(failures.begin(), failures.end(), [&](const ProcessFailure& one) {
    return is_preemption(rules, one.exit);
  });
  return all ? Outcome::kPreempted : Outcome::kFailed;
}

RestartVerdict judge_restart(const RestartRules& rules, const RestartTally& tally) {
  const RoundEnd& last = tally.last;
  RestartVerdict verdict;
  verdict.number = std::max(1, tally.unhealthy);
  if (verdict.number > rules.max_restarts) return verdict;
  verdict.gave_up = final_reason(rules, last.exit);
  if (!verdict.gave_up.empty()) return verdict;
  if (tally.same >= rules.crash_loop) {
    verdict.gave_up = fmt::format(
        "{} failed the same way {} times in a row, each time within {} s",
        last.rank == ProcessFailure::kNoRank ? "the round" : fmt::format("rank {}", last.rank),
        tally.same, std::chrono::duration_cast<std::chrono::seconds>(rules.quick).count());
    return verdict;
  }
  verdict.restart = true;
  verdict.delay = delay_after(rules, tally.quick);
  return verdict;
}

std::string restart_text(const ProcessFailure& cause, const RestartVerdict& verdict,
                         int max_restarts) {
  const std::string where = cause.host.empty() ? "" : cause.host + ": ";
  const std::string what = cause.is_worker()
                               ? fmt::format("rank {} (local rank {}, pid {}): {}", cause.rank,
                                             cause.local_rank, cause.pid, describe(cause))
                               : cause.cause;
  return fmt::format("{}{}; restart {} of {}{}", where, what, verdict.number, max_restarts,
                     verdict.delay.count() > 0 ? " in " + seconds_text(verdict.delay) : "");
}

}  // namespace ddp::launch
