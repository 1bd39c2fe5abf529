// The heartbeats of one worker: a file that it rewrites whenever it has got on. README.md says how.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launcher/base/clock.h"
#include "launcher/base/worker.h"

namespace ddp::launch {

/// The last that is known of a worker's being alive.
struct LifeSign {
  Clock::time_point at{};                  // its last heartbeat or output, else its start
  std::optional<Clock::duration> promise;  // the next one comes within this time, as it has said
  std::string text;                        // whatever else it has said, as in "step=12"
  Progress progress{};                     // what of that is understood
};

/// What one line of a heartbeat file says, in words: timeout=SECONDS is the promise, step=N,
/// phase=NAME, waiting=COLLECTIVE and collective=NAME#SEQUENCE tell how far it has got. A promise
/// that is no number above 0 is taken as text.
LifeSign parse_heartbeat(std::string_view line);

class Heartbeat {
 public:
  /// The file is the worker's to make; one that is there already is removed. `path` empty: there
  /// are no heartbeats.
  Heartbeat(std::string path, Clock::time_point start);

  /// Reads the file again. One that is empty or gone changes nothing: its writer may be at work.
  const LifeSign& look(Clock::time_point now);

  /// It has not said anything when it was looked at last.
  bool is_mute() const { return content_.empty(); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  long long written_ = 0;     // ns since 1970, as the file system says
  Clock::time_point looked_;  // for the last time
  std::string content_;       // two writes may fall into one tick of its clock
  LifeSign sign_;
};

}  // namespace ddp::launch
