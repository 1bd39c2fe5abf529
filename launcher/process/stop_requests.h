// Counts how often the end of the job has been asked for: one request may arrive as several
// signals. Pure.
#pragma once

#include "launcher/base/clock.h"

namespace ddp::launch {

enum class Sender {
  Keyboard,  // Ctrl-C or Ctrl-\ at the terminal
  Parent,    // the parent of this process, whoever that is
  Launcher,  // ddp-run's process above this one, which passes on what it has counted
  Other,
};

struct SignalOrigin {
  Sender sender = Sender::Other;
  int count = 0;  // Launcher: of requests so far
};

class StopRequests {
 public:
  /// True: this signal is one more request. False: it is one that has been counted already, come by
  /// another way: directly and through the parent, or twice from the same sender in quick
  /// succession.
  bool add(const SignalOrigin& origin, Clock::time_point now);
  /// Nothing was pending. What is before that was sent with the last request: this process may have
  /// had no CPU since.
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
