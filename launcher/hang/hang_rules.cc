#include "launcher/hang/hang_rules.h"

#include <algorithm>
#include <climits>
#include <tuple>

#include "launcher/base/text.h"
#include "launcher/base/worker.h"

namespace ddp::launch {
namespace {

// Any heartbeat may shorten the timeout, so workers that write them are checked this often.
constexpr auto kLook = std::chrono::milliseconds(200);

bool has_spoken(const LifeSign& sign) { return sign.promise || !sign.text.empty(); }

// The longest promise that also binds workers without a heartbeat.
std::optional<Clock::duration> promise_for_all(const HangRules& rules,
                                               const std::vector<LifeSign>& signs) {
  if (std::none_of(signs.begin(), signs.end(), has_spoken)) return rules.first_heartbeat;
  std::optional<Clock::duration> longest;
  for (const LifeSign& sign : signs) {
    if (sign.for_every_rank) longest = std::max(longest, sign.promise);
  }
  return longest;
}

std::optional<Clock::duration> patience(const HangRules& rules, const LifeSign& sign,
                                        std::optional<Clock::duration> for_all) {
  if (!rules.heed_promises) return rules.timeout;
  if (sign.promise) return sign.promise;
  return rules.timeout || has_spoken(sign) ? rules.timeout : for_all;
}

long long sequence_of(const std::string& collective) {
  const auto hash = collective.rfind('#');
  if (hash == std::string::npos) return LLONG_MAX;
  return number_in<long long>(collective.substr(hash + 1)).value_or(LLONG_MAX);
}

// A smaller place is further behind; a worker that reported no step never reached one.
using Place = std::tuple<long long, bool, long long>;
Place place_of(const Progress& progress) {
  return {progress.step.value_or(-1), !progress.waiting.empty(), sequence_of(progress.collective)};
}

}  // namespace

bool is_held(const Suspect& suspect) {
  return suspect.state == 'T' || suspect.state == 't' || (suspect.overdue && suspect.state == 'D');
}

HangVerdict judge_hangs(const HangRules& rules, const std::vector<LifeSign>& signs,
                        Clock::time_point since, Clock::time_point now) {
  HangVerdict verdict;
  const auto for_all = promise_for_all(rules, signs);
  for (std::size_t i = 0; i < signs.size(); ++i) {
    const auto limit = patience(rules, signs[i], for_all);
    if (rules.heed_promises && has_spoken(signs[i]))
      verdict.look_again = earlier(verdict.look_again, now + kLook);
    if (!limit) continue;
    const auto begin = std::max(signs[i].at, since);
    const auto half = begin + *limit / 2;
    const auto end = begin + *limit;
    verdict.doubtful = verdict.doubtful || now >= half;
    if (now >= end) {
      verdict.overdue.push_back(i);
    } else {
      verdict.look_again = earlier(verdict.look_again, now < half ? half : end);
    }
  }
  return verdict;
}

Clock::duration starved_between(const CpuTimes& before, const CpuTimes& after,
                                Clock::duration apart) {
  Clock::duration longest{};
  for (const auto& [thread, times] : after) {
    const auto earlier = before.find(thread);
    if (earlier == before.end()) continue;
    // The wait that is not over yet is not in `waited`; a thread that is ready and did not run has
    // waited, or has only just been woken.
    const auto ran = times.ran - earlier->second.ran;
    const auto waited = times.waited - earlier->second.waited;
    longest = std::max<Clock::duration>(longest, times.ready ? apart - ran : waited);
  }
  return longest;
}

std::vector<std::size_t> find_hung(const std::vector<Suspect>& suspects) {
  bool all_wait = true;
  bool somebody_has_time = false;
  std::optional<Place> least;  // of the overdue ones
  for (const Suspect& suspect : suspects) {
    const bool keeps_promise = !suspect.overdue && !is_held(suspect) && suspect.sign.promise;
    somebody_has_time = somebody_has_time || keeps_promise;
    if (!suspect.overdue) continue;
    all_wait = all_wait && !is_held(suspect) && !suspect.sign.progress.waiting.empty();
    const Place place = place_of(suspect.sign.progress);
    least = least ? std::min(*least, place) : place;
  }
  std::vector<std::size_t> hung;
  if (all_wait && somebody_has_time) return hung;
  for (std::size_t i = 0; i < suspects.size(); ++i) {
    const Suspect& suspect = suspects[i];
    const bool waited_for =
        all_wait && least && has_spoken(suspect.sign) && place_of(suspect.sign.progress) < *least;
    if (suspect.overdue || is_held(suspect) || waited_for) hung.push_back(i);
  }
  const auto blame = [&](std::size_t i) {
    const Suspect& suspect = suspects[i];
    return std::tuple(!is_held(suspect), place_of(suspect.sign.progress), !suspect.overdue,
                      suspect.sign.at);
  };
  std::stable_sort(hung.begin(), hung.end(),
                   [&](std::size_t a, std::size_t b) { return blame(a) < blame(b); });
  return hung;
}

}  // namespace ddp::launch
