// Processes that outlive their worker: Python's resource_tracker and torch's shared memory manager,
// which clean up after the worker, an upload, a hung child. They get time to end on their own, then
// SIGTERM, then SIGKILL, which may take effect late; what only their end reveals has no time of its
// own. A program that a shell ran and that is stopping has its own time first. Never blocks.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/base/clock.h"

namespace ddp::launch {

class LeftBehind {
 public:
  /// `spared` returns the children of this process that outlive a round; `note` takes lines for the
  /// user.
  LeftBehind(std::function<std::vector<pid_t>()> spared,
             std::function<void(const std::string&)> note)
      : spared_(std::move(spared)), note_(std::move(note)) {}

  /// `processes` of this running worker's session catch the signal that stops it. What the worker
  /// leaves gets its time once these have ended; after `grace` they are killed.
  void asked_to_stop(pid_t worker, const std::vector<pid_t>& processes,
                     std::chrono::milliseconds grace);
  /// Call once a worker is reaped: its process group's time begins and, after the `last` worker of
  /// the round, that of all other children.
  void worker_ended(pid_t worker, bool last);
  /// Call when the deadline is over or a child has been reaped. Returns true if lingers() has
  /// become false.
  bool look();
  std::optional<Clock::time_point> deadline() const;
  /// Whether the round's workers have ended and their leftover processes still have time.
  bool lingers() const { return groups_.count(kAll) > 0; }
  void forget();

 private:
  static constexpr pid_t kAll = 0;
  static constexpr int kNone = 0;
  struct Next {
    Clock::time_point due;
    int signal = SIGTERM;
    bool held = false;  // by processes that were asked to stop
  };

  bool is_empty(pid_t group) const;
  void signal_others(int signal);
  bool is_held(pid_t group) const;
  void look_at_asked();

  std::function<std::vector<pid_t>()> spared_;
  std::function<void(const std::string&)> note_;
  std::map<pid_t, Next> groups_;              // by process group
  std::set<std::pair<pid_t, int>> signaled_;  // of kAll
  std::map<pid_t, pid_t> asked_;              // processes that stop -> worker
  std::chrono::milliseconds grace_{};         // of these
  Clock::time_point until_;
};

}  // namespace ddp::launch
