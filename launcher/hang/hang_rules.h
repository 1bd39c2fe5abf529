// Which workers hang, and which of them is the cause. Pure: functions of the rules, of the last
// signs of life and of what the kernel says.
#pragma once

#include <optional>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/hang/heartbeat.h"

namespace ddp::launch {

struct HangRules {
  std::optional<std::chrono::milliseconds> timeout{};  // for workers that have promised nothing
  bool heed_promises = true;                           // timeout= in a heartbeat
};

struct HangVerdict {
  std::vector<std::size_t> overdue;             // indices of `signs`
  std::optional<Clock::time_point> look_again;  // nullopt: not before somebody promises something
};

/// Silence before `since` does not count: the start of the round, or the end of a suspension.
HangVerdict judge_hangs(const HangRules& rules, const std::vector<LifeSign>& signs,
                        Clock::time_point since, Clock::time_point now);

/// A running worker when somebody is overdue.
struct Suspect {
  LifeSign sign;
  bool overdue = false;
  char state = '?';  // of its process, as in /proc/PID/stat
};

/// Indices of those that hang, the most probable cause first: whose process is stopped, traced or
/// in uninterruptible sleep; else who is furthest behind (lowest step, not waiting for its peers,
/// lowest number of its collective); else who has been silent for longest. Somebody that is not
/// overdue yet hangs if it is stopped, or behind all overdue ones while these wait for their peers.
/// Nobody, when all overdue ones wait for their peers and one of these still has time by its own
/// promise: it is at work on something that takes longer, or has come to them only now.
std::vector<std::size_t> find_hung(const std::vector<Suspect>& suspects);

}  // namespace ddp::launch
