// Reads the phase times in the workers' heartbeats, and decides when to report a straggler.
#pragma once

#include <optional>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/pace.h"
#include "launcher/base/worker.h"
#include "launcher/hang/pace_window.h"
#include "launcher/process/process_runner.h"

namespace ddp::launch {

class PaceMonitor {
 public:
  void begin_round();
  /// Call when a worker has written its first heartbeat, which may have phase times.
  void heartbeat_began(Clock::time_point now);
  /// When look() is due; nullopt: no worker writes heartbeats.
  std::optional<Clock::time_point> next_look() const { return look_at_; }
  /// Returns this node's pace; nullopt before next_look(). Its node and host are for the caller to
  /// set.
  std::optional<NodePace> look(const std::vector<Worker>& workers, ProcessRunner& processes);
  /// Whether to notify the user: at once, then at most once a minute; again about the same
  /// straggler after ten minutes.
  bool should_name(const Straggler& straggler, Clock::time_point now);

 private:
  PaceWindow window_;
  std::optional<Clock::time_point> look_at_;
  std::optional<Straggler> named_;
  Clock::time_point named_at_{};
};

}  // namespace ddp::launch
