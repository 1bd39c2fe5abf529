// Signals, blocked first and received in one place. Decides nothing: whoever reads the mailbox
// does.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/process/stop_requests.h"

namespace ddp::launch {

struct ReceivedSignal {
  int number = 0;
  SignalOrigin origin{};
  bool was_pending = false;  // nobody had to wait for it
};

class SignalMailbox {
 public:
  /// Blocks every signal that ddp-run deals with, gives SIGCHLD its default action back (an
  /// inherited SIG_IGN would lose exit statuses) and ignores SIGPIPE. A SIGHUP that was ignored at
  /// start (nohup) stays ignored.
  static SignalMailbox block();

  /// After the command line is known: listed signals are received, too; TERM, INT, HUP and QUIT
  /// that are not listed get their default action back.
  void handle(const std::vector<int>& stop_signals);

  /// True for a signal that ends the job; the other ones in the mailbox are passed on to the
  /// workers.
  bool ends_job(int signal) const;
  bool hangup_ignored() const { return hangup_ignored_; }

  /// Waits for the next signal; nullopt: the deadline has come before it.
  std::optional<ReceivedSignal> next(std::optional<Clock::time_point> deadline) const;
  /// A signalfd (non-blocking, close-on-exec) for a poll loop; the caller closes it.
  int open_fd() const;

 private:
  sigset_t received_;
  sigset_t ending_;
  bool hangup_ignored_ = false;
};

/// From siginfo or signalfd: what they say of who sent it.
SignalOrigin origin_of(int signal, int code, pid_t sender, int value);
/// To the next process of ddp-run; `requests`: how often the end has been asked for so far.
void pass_on(pid_t process, int signal, int requests);

}  // namespace ddp::launch
