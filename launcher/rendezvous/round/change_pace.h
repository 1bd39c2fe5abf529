// Controls how fast rounds follow each other when nodes join and leave. A single change takes
// effect at once. After changes in quick succession the next round waits until the nodes have
// settled, and newcomers wait longer each time, so that a flapping node does not stop the others.
#pragma once

#include <chrono>

#include "launcher/base/clock.h"
#include "launcher/base/restart_rules.h"

namespace ddp::launch {

class ChangePace {
 public:
  /// `quiet`: nodes have settled if none has joined or left for so long. `changes`: the last host's
  /// count.
  ChangePace(const RestartRules& rules, std::chrono::milliseconds quiet, int changes)
      : rules_(rules), quiet_(quiet), changes_(changes) {}

  void round_begins(Clock::time_point now);
  /// Records that a node joined or left, in any phase of the job.
  void node_changes(Clock::time_point now) { last_change_ = now; }
  /// Records that a change ends the round; returns how long the next one waits.
  std::chrono::milliseconds round_ends(Clock::time_point now);

  /// Returns when the next round may begin with nodes that have sufficed since `enough`.
  Clock::time_point settled_at(Clock::time_point enough) const;
  /// Returns when the current round may end for a newcomer.
  Clock::time_point admission() const;
  Clock::time_point last_change() const { return last_change_; }
  /// Number of consecutive rounds that were soon ended by a change.
  int changes() const { return changes_; }

 private:
  RestartRules rules_;
  std::chrono::milliseconds quiet_;
  int changes_;
  Clock::time_point began_{};  // the running round
  Clock::time_point last_change_{};
  bool unsettled_ = false;
};

}  // namespace ddp::launch
