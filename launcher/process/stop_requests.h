// Counts stop requests, each of which may arrive as several signals. Pure.
#pragma once

#include "launcher/base/clock.h"

namespace ddp::launch {

enum class Sender {
  kKeyboard,  // Ctrl-C or Ctrl-\ at the terminal
  kParent,    // this process's parent, of any kind
  kDdpRun,    // the ddp-run process above this one, which forwards its count
  kOther,
};

struct SignalOrigin {
  Sender sender = Sender::kOther;
  int count = 0;  // DdpRun: number of requests so far
};

class StopRequests {
 public:
  /// Returns true for a new request, false for a duplicate of one already counted: sent both
  /// directly and through the parent, or twice by one sender in quick succession.
  bool add(const SignalOrigin& origin, Clock::time_point now);
  /// Call when no signal was pending. Signals that are still pending after a request belong to it,
  /// as this process may not have been scheduled since.
  void nothing_pending() { at_work_ = false; }
  int count() const { return count_; }

 private:
  struct Way {
    int requests = 0;
    Clock::time_point last{};
  };

  Way from_parent_;
  Way from_others_;
  int count_ = 0;
  Clock::time_point counted_{};
  bool at_work_ = false;  // since the last request
};

}  // namespace ddp::launch
