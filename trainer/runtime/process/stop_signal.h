// SIGINT, SIGTERM, SIGHUP and SIGUSR1 (sent by schedulers before preemption) request a save and
// stop at the next step. A second one ends the process at once, unless it is the same signal within
// 2 s (Ctrl-C without a launcher: 100 ms), a duplicate. SIGUSR2 requests a status report.
#pragma once

namespace ddp::train {

/// Installs the handlers for its lifetime. A SIGHUP ignored at startup (nohup) stays ignored.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  /// Number of the signal that arrived, 0 while there was none.
  static int pending();
  /// Whether SIGUSR2 has arrived since the last call.
  static bool take_report_wish();
};

}  // namespace ddp::train
