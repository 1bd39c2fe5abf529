#include "trainer/runtime/process/background_job.h"

#include <chrono>
#include <utility>

namespace ddp::train {

BackgroundJob::BackgroundJob() : thread_([this] { work(); }) {}

BackgroundJob::~BackgroundJob() {
  wait_done();
  enter(State::kStopping);
  thread_.join();
}

bool BackgroundJob::busy() const {
  const std::lock_guard lock(mutex_);
  return state_ != State::kIdle;
}

void BackgroundJob::start(Parts parts) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return state_ == State::kIdle; });
  throw_failure();
  parts_ = std::move(parts);
  state_ = State::kCopying;
  changed_.notify_all();
}

void BackgroundJob::wait_copied() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return state_ != State::kCopying; });
  throw_failure();
}

// With the mutex held.
void BackgroundJob::throw_failure() {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

bool BackgroundJob::copied() const {
  const std::lock_guard lock(mutex_);
  return state_ != State::kCopying;
}

void BackgroundJob::wait_done() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return state_ == State::kIdle; });
}

bool BackgroundJob::wait_done_for(double seconds) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                           [this] { return state_ == State::kIdle; });
}

void BackgroundJob::enter(State state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
  changed_.notify_all();
}

void BackgroundJob::run(Parts& parts) {
  try {
    parts.copy();
    enter(State::kWriting);
    if (parts.write) parts.write();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

void BackgroundJob::work() {
  while (true) {
    Parts parts;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock,
                    [this] { return state_ == State::kCopying || state_ == State::kStopping; });
      if (state_ == State::kStopping) return;
      parts = std::move(parts_);
    }
    run(parts);
    parts = {};  // before anybody is notified: it may hold the last reference to the caller's data
    enter(State::kIdle);
  }
}

}  // namespace ddp::train
