// Repeats a rank's heartbeat during its start, which has no steps to count, while it makes
// progress.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "trainer/health/heartbeat_file.h"

namespace ddp::train {

/// What this process has done so far.
struct Effort {
  double cpu_seconds = 0.0;  ///< Sum over all threads.
  int64_t disk = 0;          ///< Blocks read, and pages read by faults.
  int64_t switches = 0;      ///< Times that the training thread gave up its CPU to wait.
};

/// Returns whether a process that spent `since` in `seconds` loads or computes: a read, one percent
/// of a CPU, or more short waits than polling takes, as for files in a network.
bool makes_progress(const Effort& since, double seconds);

/// Writes heartbeats, and repeats the last one every second for as long as the process makes
/// progress, at most kLongest, or waits for other ranks, at most kLongestWait for each wait. Called
/// by the training thread alone; ends its own thread on destruction.
class StartPulse {
 public:
  static constexpr std::chrono::seconds kLook{1};
  static constexpr std::chrono::minutes kLongest{30};
  static constexpr std::chrono::minutes kLongestWait{4};  // and its last promise of a minute
  /// Number of the wait for other ranks in progress, 0 if there is none; called by any thread.
  using Waits = uint64_t (*)();

  /// `file` outlives this.
  StartPulse(HeartbeatFile& file, Waits waits);

  /// Writes `line`; `repeats`: it makes a promise, so that repeating it extends that.
  void beat(std::string_view line, bool repeats);

 private:
  using Clock = std::chrono::steady_clock;
  void work(const std::stop_token& stop);
  void look(const Effort& since, double seconds, Clock::time_point now);

  HeartbeatFile& file_;
  Waits waits_;
  std::mutex mutex_;
  std::condition_variable_any ended_;
  std::string line_;  // "": not to be repeated
  Clock::time_point began_{};
  uint32_t recent_ = 0;  // a bit for each look, the last one lowest: whether it found progress
  uint64_t wait_ = 0;    // for other ranks, as waits_ numbers it
  Clock::time_point wait_began_{};
  const pid_t training_thread_;
  std::jthread thread_;  // the last member: it uses the others
};

}  // namespace ddp::train
