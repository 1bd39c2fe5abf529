// Which workers hang. Pure: a function of the rules and of the last signs of life.
#pragma once

#include <optional>
#include <vector>

#include "launcher/heartbeat.h"

namespace ddp::launch {

struct HangRules {
  std::optional<std::chrono::milliseconds> timeout{};  // for workers that have promised nothing
  bool heed_promises = true;                           // timeout= in a heartbeat
};

struct HangVerdict {
  std::vector<std::size_t> hung;  // indices of `signs`; who has been silent for longest comes first
  std::optional<Clock::time_point> look_again;  // nullopt: not before somebody promises something
};

/// Silence before `since` does not count: the start of the round, or the end of a suspension.
HangVerdict judge_hangs(const HangRules& rules, const std::vector<LifeSign>& signs,
                        Clock::time_point since, Clock::time_point now);

}  // namespace ddp::launch
