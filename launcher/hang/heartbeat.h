// A worker's heartbeats: a file that it rewrites whenever it makes progress; see README.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/base/clock.h"
#include "launcher/base/pace.h"
#include "launcher/base/system/descriptors.h"
#include "launcher/base/worker.h"

namespace ddp::launch {

/// A worker's last sign of life.
struct LifeSign {
  Clock::time_point at{};                  // last heartbeat or output, else its start
  std::optional<Clock::duration> promise;  // the next one will come within this time
  std::string text;                        // its words except timeout= and times=, e.g. "step=12"
  Progress progress{};                     // parsed from the text
  std::vector<PhaseTime> times{};          // times=: of the last step
  bool offers_standby = false;             // spares=1: its program supports standby workers
  bool for_every_rank = false;             // ranks=all: every rank writes heartbeats
};

/// Parses one heartbeat line: timeout=SECONDS is the promise; step=N, phase=NAME,
/// waiting=COLLECTIVE and collective=NAME#SEQUENCE are the progress, times=PHASE:SECONDS,... the
/// times. A timeout that is not a number above 0 counts as text, as do malformed times.
LifeSign parse_heartbeat(std::string_view line);

class Heartbeat {
 public:
  /// Removes an existing file; the worker creates its own. Empty `path`: no heartbeats.
  Heartbeat(std::string path, Clock::time_point start);

  /// Rereads the file. An empty or missing file changes nothing: it may be mid-write. Because
  /// cleaners of temporary files must not end a job, a removed file is still read while the worker
  /// has it open, and its folder is restored for workers that open it for each heartbeat.
  const LifeSign& look(Clock::time_point now);

  /// Whether it was still empty at the last check.
  bool is_mute() const { return content_.empty(); }
  const std::string& path() const { return path_; }

 private:
  void reopen();

  std::string path_;
  Descriptor file_;           // the file last found at path_
  long long written_ = 0;     // modification time in ns
  Clock::time_point looked_;  // time of the last check
  std::string content_;       // as two writes may share a modification time
  LifeSign sign_;
};

}  // namespace ddp::launch
