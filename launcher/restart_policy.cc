#include "launcher/restart_policy.h"

#include <fmt/format.h>

#include <algorithm>

#include "launcher/worker_contract.h"

namespace ddp::launch {
namespace {

constexpr auto kQuick = std::chrono::seconds(10);
constexpr std::chrono::milliseconds kLongestDelay = std::chrono::minutes(1);

int exit_value(const ExitStatus& exit) {
  return exit.signal != 0 ? kExitSignalBase + exit.signal : exit.code;
}

bool same_failure(const RoundEnd& a, const RoundEnd& b) {
  return a.rank == b.rank && exit_value(a.exit) == exit_value(b.exit);
}

template <typename Predicate>
int in_a_row(const std::vector<RoundEnd>& history, Predicate holds) {
  const auto stop = std::find_if_not(history.rbegin(), history.rend(), holds);
  return static_cast<int>(stop - history.rbegin());
}

int restarts_used(const RestartRules& rules, const std::vector<RoundEnd>& history) {
  if (rules.healthy_after.count() == 0) return static_cast<int>(history.size()) - 1;
  if (history.back().lived >= rules.healthy_after) return 0;
  return in_a_row(history, [&](const RoundEnd& end) { return end.lived < rules.healthy_after; }) -
         1;
}

}  // namespace

RestartVerdict judge_restart(const RestartRules& rules, const std::vector<RoundEnd>& history) {
  const RoundEnd& last = history.back();
  RestartVerdict verdict;
  verdict.number = restarts_used(rules, history) + 1;
  if (verdict.number > rules.max_restarts) return verdict;
  if (rules.final_codes.count(exit_value(last.exit)) > 0) {
    verdict.gave_up = fmt::format("exit code {} is final", exit_value(last.exit));
    return verdict;
  }
  const int same = in_a_row(
      history, [&](const RoundEnd& end) { return same_failure(end, last) && end.lived < kQuick; });
  if (rules.crash_loop > 0 && same >= rules.crash_loop) {
    verdict.gave_up = fmt::format(
        "rank {} failed in the same way {} times in a row, each within {} s of its start",
        last.rank, same, kQuick.count());
    return verdict;
  }
  verdict.restart = true;
  const int quick = in_a_row(history, [](const RoundEnd& end) { return end.lived < kQuick; });
  verdict.delay = std::min(kLongestDelay, rules.delay * (1 << std::clamp(quick - 1, 0, 16)));
  return verdict;
}

}  // namespace ddp::launch
