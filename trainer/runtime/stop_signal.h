// SIGINT, SIGTERM, SIGHUP and SIGUSR1 (what schedulers send before they take a node away) as a wish
// to save and stop at the next step; the second of them ends the process at once, but for the same
// one within 2 s (Ctrl-C without a launcher: 100 ms), which is the first one come twice. SIGUSR2 as
// a wish to hear how the run is doing.
#pragma once

namespace ddp::train {

/// Installs the handlers while it lives. An inherited ignored SIGHUP stays ignored (nohup).
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
