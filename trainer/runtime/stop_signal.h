// SIGINT, SIGTERM and SIGHUP as a wish to stop at the next step; the second of them ends the
// process at once.
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
};

}  // namespace ddp::train
