// Checks the workers' signs of life when due and reports hung workers.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/run_result.h"
#include "launcher/base/worker.h"
#include "launcher/hang/hang_rules.h"
#include "launcher/process/process_runner.h"

namespace ddp::launch {

class HangMonitor {
 public:
  explicit HangMonitor(HangRules rules) : rules_(rules) {}

  void begin_round(Clock::time_point now);
  /// Call when a worker has written its first heartbeat, which may announce a timeout.
  void heartbeat_began(Clock::time_point now) { look_at_ = now; }
  /// Call after the workers were suspended: their silence and sleep so far do not count.
  void forgive_silence(Clock::time_point now);

  /// When look() is due; nullopt: not before the first heartbeat.
  std::optional<Clock::time_point> next_look() const;

  /// Returns one failure per hung worker, the cause first; empty before next_look().
  std::vector<ProcessFailure> look(const std::vector<Worker>& workers, ProcessRunner& processes);

 private:
  bool only_starved(const std::vector<const Worker*>& alive, const std::vector<LifeSign>& signs,
                    ProcessRunner& processes);
  std::vector<ProcessFailure> look_at_states(const std::vector<Worker>& workers,
                                             ProcessRunner& processes);
  ProcessFailure describe(const Worker& worker, const Suspect& suspect,
                          ProcessRunner& processes) const;

  struct Sleep {
    long switches = 0;  // KernelState::switches
    Clock::time_point since;
  };

  HangRules rules_;
  std::optional<Clock::time_point> look_at_;
  std::optional<Clock::time_point> look_at_states_;
  std::map<pid_t, Sleep> uninterruptible_;
  Clock::time_point silent_since_;  // silence before it does not count
  CpuTimes times_at_half_;          // CPU times of all workers at half_
  Clock::time_point half_;          // when half of a promise was over
  bool starvation_noted_ = false;   // in this round
};

}  // namespace ddp::launch
