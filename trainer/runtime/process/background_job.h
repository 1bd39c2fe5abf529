// Runs one job at a time on its own thread, in two parts: the caller's data may change after the
// first, and everything else may run alongside the second.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace ddp::train {

/// Holds at most one job: to start another, wait, or skip it. An exception in a part ends the job
/// and is rethrown by the next start() or wait_copied().
class BackgroundJob {
 public:
  struct Parts {
    std::function<void()> copy;   ///< Copies what it needs from the caller's data.
    std::function<void()> write;  ///< Works on the copy only.
  };

  BackgroundJob();
  /// Finishes the current job.
  ~BackgroundJob();
  BackgroundJob(const BackgroundJob&) = delete;
  BackgroundJob& operator=(const BackgroundJob&) = delete;

  bool busy() const;
  /// Waits for the current job, if any, then starts this one. Rethrows an earlier job's exception.
  void start(Parts parts);
  /// Blocks until the data may change: no job is in its first part. Rethrows a job's exception.
  void wait_copied();
  /// Whether no job is in its first part now.
  bool copied() const;
  /// Blocks until no job is running.
  void wait_done();
  /// Like wait_done(), for at most `seconds`. Returns true if no job is running.
  bool wait_done_for(double seconds);

 private:
  enum class State { kIdle, kCopying, kWriting, kStopping };
  void work();
  void run(Parts& parts);
  void throw_failure();
  void enter(State state);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kIdle;
  Parts parts_;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace ddp::train
