// SIGINT, SIGTERM, SIGHUP and SIGUSR1 (sent by schedulers before preemption) request a save and
// stop after the current step. A second one ends the process at once, unless it is the same signal
// within 2 s (Ctrl-C without a launcher: 100 ms), a duplicate, or SIGUSR1, which only announces an
// end. SIGUSR2 requests a status report.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace ddp::train {

/// While there is no StopSignal SIGUSR1 ends the process with kExitPreempted from now on, as there
/// is nothing to save. An ignored one stays ignored.
void end_when_preempted();
/// The run has ended and is saved: SIGUSR1 changes nothing from now on.
void ignore_preemption();

/// Installs the handlers for its lifetime. A SIGHUP ignored at startup (nohup) stays ignored.
class StopSignal {
 public:
  /// `on_first`: called with the first signal's number, at once, on a separate thread; may be
  /// empty. Only one object at a time may have one.
  explicit StopSignal(std::function<void(int)> on_first = {});
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  /// Returns the number of the signal that arrived, 0 if none has.
  static int pending();
  /// Returns how long ago it arrived; 0 if none has.
  static std::chrono::milliseconds pending_for();
  /// Whether SIGUSR2 has arrived since the last call.
  static bool take_report_wish();

 private:
  std::thread teller_;
};

}  // namespace ddp::train
