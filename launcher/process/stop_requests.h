// Counts stop requests: one request may arrive as several signals. Pure.
#pragma once

#include "launcher/base/clock.h"

namespace ddp::launch {

enum class Sender {
  Keyboard,  // Ctrl-C or Ctrl-\ at the terminal
  Parent,    // this process's parent, whatever it is
  Launcher,  // the ddp-run process above this one, which forwards its count
  Other,
};

struct SignalOrigin {
  Sender sender = Sender::Other;
  int count = 0;  // Launcher: of requests so far
};

class StopRequests {
 public:
  /// True: a new request. False: a duplicate of one already counted, sent both directly and through
  /// the parent, or twice by one sender in quick succession.
  bool add(const SignalOrigin& origin, Clock::time_point now);
  /// Nothing was pending. Signals pending before that belong to the last request: this process may
  /// not have run since.
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
