// Produces items in order on a few threads, a bounded number ahead of their consumer.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace ddp::train {

/// One consumer, `workers` producers. Unconsumed items are dropped at the end.
template <typename Task, typename Item>
class Prefetcher {
 public:
  /// Describes the next item. Never called concurrently.
  using Take = std::function<Task()>;
  /// Produces it. Called concurrently.
  using Make = std::function<Item(const Task&)>;

  /// With `workers` threads, or as many as the system grants, at most `ahead` (at least 1) items
  /// ahead of next(); with none, next() makes the item itself.
  Prefetcher(int64_t workers, int64_t ahead, Take take, Make make)
      : take_(std::move(take)),
        make_(std::move(make)),
        slots_(static_cast<std::size_t>(std::max<int64_t>(1, ahead))) {
    try {
      for (int64_t i = 0; i < workers; ++i) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {  // those that run make all items
    }
  }

  /// Waits for items in progress.
  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    space_.notify_all();
    for (auto& thread : threads_) thread.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  /// The next item. Rethrows an exception from making it; the following call continues after it.
  Item next() {
    if (threads_.empty()) return make_(take_());
    std::unique_lock lock(mutex_);
    Slot& slot = slots_[consumed_ % slots_.size()];
    ready_.wait(lock, [&] { return slot.item || slot.error; });
    Slot taken = std::exchange(slot, {});
    ++consumed_;
    lock.unlock();
    space_.notify_one();
    if (taken.error) std::rethrow_exception(taken.error);
    return std::move(*taken.item);
  }

 private:
  struct Slot {
    std::optional<Item> item;
    std::exception_ptr error;
  };

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      space_.wait(lock, [&] { return stopping_ || issued_ < consumed_ + slots_.size(); });
      if (stopping_) return;
      Slot& slot = slots_[issued_++ % slots_.size()];
      Slot made;
      try {
        const Task task = take_();
        lock.unlock();
        made.item = make_(task);
      } catch (...) {
        made.error = std::current_exception();
      }
      if (!lock.owns_lock()) lock.lock();
      slot = std::move(made);
      ready_.notify_one();
    }
  }

  const Take take_;
  const Make make_;
  std::mutex mutex_;
  std::condition_variable space_;
  std::condition_variable ready_;
  uint64_t issued_ = 0;
  uint64_t consumed_ = 0;
  bool stopping_ = false;
  std::vector<Slot> slots_;
  std::vector<std::thread> threads_;
};

}  // namespace ddp::train
