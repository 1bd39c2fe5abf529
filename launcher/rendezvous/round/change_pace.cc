#include "launcher/rendezvous/round/change_pace.h"

#include <algorithm>

#include "launcher/rendezvous/restart_policy.h"

namespace ddp::launch {
namespace {

constexpr int kLongestSettling = 10;  // times `quiet`

}  // namespace

void ChangePace::round_begins(Clock::time_point now) {
  began_ = now;
  unsettled_ = false;
}

std::chrono::milliseconds ChangePace::round_ends(Clock::time_point now) {
  const auto calm = std::max(rules_.quick, 2 * delay_after(rules_, changes_ + 1));
  const bool soon = rules_.quick.count() > 0 && now - began_ < calm;
  changes_ = soon ? changes_ + 1 : 0;
  unsettled_ = changes_ > 1;
  last_change_ = now;
  return delay_after(rules_, changes_);
}

Clock::time_point ChangePace::settled_at(Clock::time_point enough) const {
  if (!unsettled_) return enough;
  return std::min(enough + kLongestSettling * quiet_, std::max(enough, last_change_ + quiet_));
}

Clock::time_point ChangePace::admission() const {
  if (changes_ == 0) return began_;
  return began_ + std::max(quiet_, delay_after(rules_, changes_ + 1));
}

}  // namespace ddp::launch
