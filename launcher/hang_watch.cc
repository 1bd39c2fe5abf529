#include "launcher/hang_watch.h"

#include <algorithm>

namespace ddp::launch {
namespace {

// A promise may become shorter at any heartbeat: whoever has made one is looked at so often.
constexpr auto kLook = std::chrono::seconds(1);

std::optional<Clock::duration> patience(const HangRules& rules, const LifeSign& sign) {
  if (rules.heed_promises && sign.promise) return sign.promise;
  return rules.timeout;
}

void sooner(std::optional<Clock::time_point>& when, Clock::time_point other) {
  when = when ? std::min(*when, other) : other;
}

}  // namespace

HangVerdict judge_hangs(const HangRules& rules, const std::vector<LifeSign>& signs,
                        Clock::time_point since, Clock::time_point now) {
  HangVerdict verdict;
  for (std::size_t i = 0; i < signs.size(); ++i) {
    const auto limit = patience(rules, signs[i]);
    if (!limit) continue;
    const auto end = std::max(signs[i].at, since) + *limit;
    if (now >= end) {
      verdict.hung.push_back(i);
    } else {
      sooner(verdict.look_again, signs[i].promise ? std::min(end, now + kLook) : end);
    }
  }
  std::stable_sort(verdict.hung.begin(), verdict.hung.end(),
                   [&](std::size_t a, std::size_t b) { return signs[a].at < signs[b].at; });
  return verdict;
}

}  // namespace ddp::launch
