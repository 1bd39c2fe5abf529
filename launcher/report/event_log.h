// What happens to a job, one JSON object per line, in the shape of torchelastic's events
// (torch/distributed/elastic/events/api.py) with real times.
#pragma once

#include <functional>
#include <string>

#include "launcher/base/clock.h"
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

  /// No sink: says nothing.
  EventLog() = default;
  EventLog(Job job, Sink sink);

  /// RENDEZVOUS, START, SUCCEEDED, FAILED, PREEMPTED, INTERRUPTED: of the whole group.
  void group(const char* state, const WorkerGroup& group, Clock::duration since_start) const;
  /// SUCCEEDED, FAILED, TERMINATED, HUNG: of one worker. `text`: error file or description of the
  /// hang; may be empty.
  void worker(const char* state, const WorkerGroup& group, const Worker& worker,
              Clock::duration since_start, const std::string& text) const;

 private:
  Job job_;
  Sink sink_;
};

/// A file that lines are appended to; throws LaunchError (2) when it cannot be written.
EventLog::Sink append_to(const std::string& path);

}  // namespace ddp::launch
