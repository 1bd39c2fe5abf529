// A worker's heartbeats: a file that it rewrites on each bit of progress; see README.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launcher/base/clock.h"
#include "launcher/base/worker.h"

namespace ddp::launch {

/// A worker's last sign of life.
struct LifeSign {
  Clock::time_point at{};                  // its last heartbeat or output, else its start
  std::optional<Clock::duration> promise;  // the next one will come within this time
  std::string text;                        // the rest of its text, e.g. "step=12"
  Progress progress{};                     // what was parsed from it
  bool takes_spares = false;               // its program can be started early
  bool for_every_rank = false;             // every rank of its program writes heartbeats
};

/// Parses one heartbeat line: timeout=SECONDS is the promise; step=N, phase=NAME,
/// waiting=COLLECTIVE and collective=NAME#SEQUENCE are the progress. A timeout that is not a number
/// above 0 counts as text. spares=1 is the program's offer to be started early, ranks=all announces
/// that each of its ranks writes heartbeats.
LifeSign parse_heartbeat(std::string_view line);

class Heartbeat {
 public:
  /// The worker creates the file; an existing one is removed. Empty `path`: no heartbeats.
  Heartbeat(std::string path, Clock::time_point start);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Rereads the file. An empty or missing file changes nothing: it may be mid-write. A file that
  /// was removed is read as long as the worker has it open, and its folder is restored for a worker
  /// that opens it for each heartbeat: cleaners of temporary files must not end a job.
  const LifeSign& look(Clock::time_point now);

  /// It was still empty at the last check.
  bool is_mute() const { return content_.empty(); }
  const std::string& path() const { return path_; }

 private:
  void reopen();

  std::string path_;
  int file_ = -1;             // the one that was last found there
  long long written_ = 0;     // ns since 1970, as the file system says
  Clock::time_point looked_;  // time of the last check
  std::string content_;       // two writes may share one tick of its clock
  LifeSign sign_;
};

}  // namespace ddp::launch
