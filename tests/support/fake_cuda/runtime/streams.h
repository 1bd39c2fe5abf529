// Streams are queues with a worker thread each: the host continues at once, and work happens in the
// order of the streams and of the events between them, as on a device.
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace fake_cuda {

using Work = std::function<void()>;

class Stream;

/// What a stream recorded between begin and end of a capture.
struct Graph {
  uint64_t id = 0;  ///< The capture's.
  std::vector<Work> work;
  std::vector<std::string> kernels;
  std::set<Stream*> streams;  ///< Those that capture into it.
};

/// A place in a stream's order: reached when all work queued before it has been done.
struct Ticket {
  Stream* stream = nullptr;
  uint64_t number = 0;

  bool reached() const;
  void wait() const;
};

/// Streams are never freed: events point to them, and programs destroy streams at odd times.
class Stream {
 public:
  explicit Stream(int device, int priority) : device_(device), priority_(priority) {}

  int device() const { return device_; }
  int priority() const { return priority_; }

  /// Queues `work`; the first call starts the worker.
  Ticket push(Work work);
  /// The place after everything queued so far.
  Ticket now();
  /// Lets the worker end when it has nothing left to do.
  void stop();

  Graph* capture = nullptr;  ///< While this stream captures; used by the thread that captures.

 private:
  friend struct Ticket;
  void run();

  const int device_;
  const int priority_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  uint64_t submitted_ = 0;
  uint64_t done_ = 0;
  bool started_ = false;
  bool stopping_ = false;
};

/// The stream of a handle; null and the legacy handles mean the current device's default stream.
Stream& stream_of(cudaStream_t handle);

/// Work in stream order: recorded while the stream captures, else queued.
void submit(cudaStream_t handle, Work work);

/// Blocks until every stream of `device` has done what it had queued.
void wait_for_device(int device);

/// The calling thread's current device, an index among the visible ones.
int current_device();
void set_current_device(int device);

}  // namespace fake_cuda
