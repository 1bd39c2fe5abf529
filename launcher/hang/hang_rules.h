// Decides which workers are hung, and which one is the cause. Pure: functions of the rules, the
// last signs of life and the kernel's process states.
#pragma once

#include <optional>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/system/proc_files.h"
#include "launcher/hang/heartbeat.h"

namespace ddp::launch {

struct HangRules {
  std::optional<std::chrono::milliseconds> timeout{};  // for workers that announced no timeout
  bool heed_promises = true;                           // timeout= in a heartbeat
  /// Time for each worker's first heartbeat, if its program is known to write them.
  std::optional<std::chrono::milliseconds> first_heartbeat{};
  /// How long a worker may stay in uninterruptible sleep.
  std::optional<std::chrono::milliseconds> uninterruptible{};
};

struct HangVerdict {
  std::vector<std::size_t> overdue;             // indices of `signs`
  bool doubtful = false;                        // a worker has used up half of its time
  std::optional<Clock::time_point> look_again;  // nullopt: once a worker announces a timeout
};

/// Silence before `since` (start of the round, or end of a suspension) does not count. A worker
/// without any heartbeat is held to the longest promise of those with `for_every_rank`, and to
/// `first_heartbeat` as long as no worker has written one.
HangVerdict judge_hangs(const HangRules& rules, const std::vector<LifeSign>& signs,
                        Clock::time_point since, Clock::time_point now);

/// A running worker, judged when some worker is overdue.
struct Suspect {
  LifeSign sign;
  bool overdue = false;
  char state = '?';  // of its process, as in /proc/PID/stat
};

/// Returns whether the worker is stopped, traced or, once overdue, in uninterruptible sleep, in
/// which every process that reads a disk is now and then.
bool is_held(const Suspect& suspect);

/// Returns the longest time that a thread waited for a CPU between two readings taken `apart` from
/// each other. A worker that is runnable but not scheduled is slow, not hung.
Clock::duration starved_between(const CpuTimes& before, const CpuTimes& after,
                                Clock::duration apart);

/// Returns the indices of hung workers, most probable cause first: processes that are stopped,
/// traced or in uninterruptible sleep; then those furthest behind (lowest step, not waiting for
/// peers, lowest collective number); then those silent longest. A worker that is not overdue counts
/// as hung if it is stopped, or if it is behind all overdue ones while these wait for their peers.
/// Empty if all overdue workers wait for peers and one peer still has time left by its own timeout:
/// it is busy, or has only just reached them.
std::vector<std::size_t> find_hung(const std::vector<Suspect>& suspects);

}  // namespace ddp::launch
