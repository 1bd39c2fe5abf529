// How fast one round follows another when nodes come and go. A single change is followed at once.
// Where changes come in quick succession, the next round waits until the nodes have settled, and
// newcomers wait longer each time, so that a flapping node does not keep the others from working.
#pragma once

#include <chrono>

#include "launcher/base/clock.h"
#include "launcher/base/restart_rules.h"

namespace ddp::launch {

class ChangePace {
 public:
  /// `quiet`: nodes have settled when for so long none came or went. `changes`: as known to the
  /// last host.
  ChangePace(const RestartRules& rules, std::chrono::milliseconds quiet, int changes)
      : rules_(rules), quiet_(quiet), changes_(changes) {}

  void round_begins(Clock::time_point now);
  /// A node came or went, whatever the job does.
  void node_changes(Clock::time_point now) { last_change_ = now; }
  /// A change ends the round; returns how long the next one waits.
  std::chrono::milliseconds round_ends(Clock::time_point now);

  /// When the next round may begin with the nodes that have been enough since `enough`.
  Clock::time_point settled_at(Clock::time_point enough) const;
  /// When the running round may end for a newcomer.
  Clock::time_point admission() const;
  Clock::time_point last_change() const { return last_change_; }
  /// Rounds in a row that a change ended soon.
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
