// Blocks signals early and receives them in one place. Decisions are up to its reader.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/process/stop_requests.h"

namespace ddp::launch {

struct ReceivedSignal {
  int number = 0;
  SignalOrigin origin{};
  bool was_pending = false;  // pending before next() was called
};

class SignalMailbox {
 public:
  /// Blocks every signal ddp-run handles, resets SIGCHLD to its default action (an inherited
  /// SIG_IGN would lose exit statuses) and ignores SIGPIPE. A SIGHUP ignored at startup (nohup)
  /// stays ignored.
  static SignalMailbox block();

  /// Call once the command line is parsed: also receives the listed signals; resets TERM, INT, HUP
  /// and QUIT to their default action if not listed.
  void handle(const std::vector<int>& stop_signals);

  /// Whether a signal ends the job; others are forwarded to the workers.
  bool ends_job(int signal) const;
  bool hangup_ignored() const { return hangup_ignored_; }

  /// Waits for the next signal; returns nullopt if the deadline passed first.
  std::optional<ReceivedSignal> next(std::optional<Clock::time_point> deadline) const;
  /// Returns a signalfd (non-blocking, close-on-exec) for a poll loop.
  Descriptor open_fd() const;

 private:
  sigset_t received_;
  sigset_t ending_;
  bool hangup_ignored_ = false;
};

/// Determines who sent a signal from siginfo or signalfd fields.
SignalOrigin origin_of(int signal, int code, pid_t sender, int value);
/// Forwards a signal to the next ddp-run process below; `requests`: stop requests so far.
void pass_on(pid_t process, int signal, int requests);

}  // namespace ddp::launch
