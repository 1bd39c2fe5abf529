// Sends metrics.jsonl to Weights & Biases or MLflow: a process of scripts/track_run.py.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>

#include "trainer/runtime/files/descriptor.h"
#include "trainer/runtime/log/log.h"

namespace ddp::train {

/// Exists on rank 0, for the training thread. Never throws: a missing Python or package is logged
/// as one warning. The process has its own process group and blocks the signals that stop a job;
/// it sends the rest and ends when its standard input ends, however this process does.
class Tracker {
 public:
  /// `folder`: hydra.run.dir. `target`: wandb or mlflow. `mode`: wandb's. `log` must outlive it.
  Tracker(const std::string& folder, std::string target, std::string_view mode, Log& log);
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;

  /// Logs some of what the process has printed. Does not block.
  void log_lines() { log_some(std::chrono::milliseconds(0)); }
  /// Asks the process to send the rest and end.
  void finish() { ::shutdown(process_, SHUT_WR); }
  /// Call after finish(): blocks until the process has ended; at `deadline` it is left to itself,
  /// which is logged.
  void wait_until(std::chrono::steady_clock::time_point deadline);

 private:
  /// Waits for `patience` at most. Returns whether there was something.
  bool log_some(std::chrono::milliseconds patience);
  void log_line(std::string_view line);

  std::string target_;
  Log& log_;
  std::string by_hand_;  // the command that sends the rest
  pid_t pid_ = -1;
  Descriptor process_;  // a socket: its standard streams
  std::string rest_;    // an incomplete line
  bool has_failed_ = false;
};

}  // namespace ddp::train
