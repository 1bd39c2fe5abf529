// The host waits for a device by polling, so that the wait can end when a rank that the device
// waits for has failed.
#pragma once

#include <c10/core/StreamGuard.h>
#include <torch/torch.h>

#include <memory>

namespace ddp::train {

class DeviceEvent;
using ReadyEvent = std::shared_ptr<const DeviceEvent>;

/// A second stream of the device, for copies alongside training.
class CopyStream {
 public:
  virtual ~CopyStream() = default;
  /// Queues a copy to host memory. Returns before it is made if that memory is page-locked.
  virtual void copy(torch::Tensor to, const torch::Tensor& from) = 0;
  virtual ReadyEvent mark() = 0;
};

/// A mark in a device's queue. From any thread.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  /// Whether the device has come to it; does not wait. Throws c10::Error for what went wrong there.
  virtual bool passed() const = 0;
  /// What the calling thread queues from now on begins after it. The host does not wait.
  virtual void make_stream_wait() const = 0;
  /// A queue whose work begins after it.
  virtual std::unique_ptr<CopyStream> side_queue() const = 0;
};

/// A mark in the present queue of `device`; null for CPUs, whose work is done when it is asked for.
ReadyEvent record_ready(torch::Device device);

/// While it lives, what the calling thread queues for a GPU goes into a queue of its own, which
/// begins with what the present queue holds up to here. record_ready() is a mark in that queue.
class SideQueue {
 public:
  explicit SideQueue(torch::Device device);

 private:
  c10::StreamGuard guard_;
};

/// While an object exists, nothing relies on the device: it may be waiting for a rank that has
/// failed, and what it computes after the communicator's abort must not be saved.
class DeviceGivenUp {
 public:
  DeviceGivenUp();
  ~DeviceGivenUp();
  DeviceGivenUp(const DeviceGivenUp&) = delete;
  DeviceGivenUp& operator=(const DeviceGivenUp&) = delete;

  static bool now();
  /// Blocks while such an object exists: for a thread that must not continue.
  static void stay();
};

/// Blocks until the device has reached `mark`; null: at once. Returns false if it was given up
/// before. For threads other than training's.
bool device_came_to(const ReadyEvent& mark);

/// Returns once the device has come to `mark`, never while it is given up. For the training thread:
/// counts as a wait for other ranks (CollectiveWait).
void wait_for_device(const ReadyEvent& mark);
/// The same for everything that has been queued so far.
void wait_for_device(torch::Device device);

/// A tensor on its way to the CPU.
struct HostCopy {
  torch::Tensor tensor;  ///< Holds the values once the device has come to `copied`.
  ReadyEvent copied;     ///< Null for CPUs.
};

/// Queues a copy of `tensor` to page-locked memory; does not wait. A tensor of the CPU is its own
/// copy.
HostCopy begin_to_host(const torch::Tensor& tensor);

/// `tensor` on the CPU, by way of wait_for_device().
torch::Tensor to_host(const torch::Tensor& tensor);

}  // namespace ddp::train
