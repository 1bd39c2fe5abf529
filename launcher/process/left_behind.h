// Processes that outlive their worker: Python's resource_tracker and torch's shared memory manager,
// which clean up after the worker, an upload, a hung child. Each gets time to end on its
// own, then SIGTERM, then SIGKILL, whose effect may take its time. Never blocks.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "launcher/base/clock.h"

namespace ddp::launch {

class LeftBehind {
 public:
  /// `spared` returns the children of this process that outlive a round.
  explicit LeftBehind(std::function<std::vector<pid_t>()> spared) : spared_(std::move(spared)) {}

  /// Call once a worker is reaped: its process group's time begins and, after the `last` worker of
  /// the round, that of all other children.
  void worker_ended(pid_t worker, bool last);
  /// Call when the deadline is over or a child has been reaped. Returns true if lingers() has
  /// become false.
  bool look();
  std::optional<Clock::time_point> deadline() const;
  /// Whether the round's workers have ended and their leftover processes still have time.
  bool lingers() const { return groups_.count(kAll) > 0; }
  void forget() { groups_.clear(); }

 private:
  struct Next {
    Clock::time_point due;
    int signal = SIGTERM;
  };
  static constexpr pid_t kAll = 0;
  static constexpr int kNone = 0;  // SIGKILL was sent

  bool is_empty(pid_t group) const;
  void signal(pid_t group, int signal) const;

  std::function<std::vector<pid_t>()> spared_;
  std::map<pid_t, Next> groups_;  // by process group
};

}  // namespace ddp::launch
