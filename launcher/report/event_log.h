// Writes a job's events, one JSON object per line, in the format of torchelastic's
// (torch/distributed/elastic/events/api.py), but with real timestamps.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "launcher/base/clock.h"
#include "launcher/base/pace.h"
#include "launcher/base/worker.h"

namespace ddp::launch {

class EventLog {
 public:
  using Sink = std::function<void(const std::string& line)>;

  struct Job {
    std::string run_id;
    std::string role;
    std::string host;
    std::string entry_point;
    std::string rendezvous;
  };

  /// Without a sink it writes nothing.
  EventLog() = default;
  EventLog(Job job, Sink sink);

  /// Writes an event of the group: RENDEZVOUS, START, SUCCEEDED, FAILED, PREEMPTED, INTERRUPTED.
  void group(const char* state, const WorkerGroup& group, Clock::duration since_start) const;
  /// Writes an event of one worker: SUCCEEDED, FAILED, TERMINATED, HUNG. `text` is its error file's
  /// text or a description of the hang; may be empty.
  void worker(const char* state, const WorkerGroup& group, const Worker& worker,
              Clock::duration since_start, const std::string& text) const;
  /// Writes a STRAGGLER event: the rank that the others wait for.
  void straggler(const WorkerGroup& group, const Straggler& straggler,
                 Clock::duration since_start) const;

 private:
  Job job_;
  Sink sink_;
};

/// Opens a file for --events. Returns a function that appends to it and returns 0 or an errno.
/// Throws LaunchError (2) if it cannot be written.
std::function<int(std::string_view)> append_to(const std::string& path);

}  // namespace ddp::launch
