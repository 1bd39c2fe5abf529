// One job at a time on a thread of its own, in two parts: the caller's data may change only after
// the first, and all else may go on beside the second.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace ddp::train {

/// Never holds more than one job: who wants to start another one waits, or leaves it.
class BackgroundJob {
 public:
  struct Parts {
    std::function<void()> copy;   ///< Takes what it needs from the caller's data.
    std::function<void()> write;  ///< Works on the copy alone.
  };

  BackgroundJob();
  /// Finishes the job in hand.
  ~BackgroundJob();
  BackgroundJob(const BackgroundJob&) = delete;
  BackgroundJob& operator=(const BackgroundJob&) = delete;

  bool busy() const;
  /// Waits for the job in hand, if any, then hands this one over.
  void start(Parts parts);
  /// Returns when the data may change: no job is in its first part.
  void wait_copied();
  /// Returns when no job is in hand.
  void wait_done();
  /// As wait_done(), for at most `seconds`. True when no job is in hand.
  bool wait_done_for(double seconds);

 private:
  enum class State { kIdle, kCopying, kWriting, kStopping };
  void work();
  void enter(State state);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kIdle;
  Parts parts_;
  std::thread thread_;
};

}  // namespace ddp::train
