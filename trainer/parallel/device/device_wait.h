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
  /// Queues a copy to host memory; asynchronous if that memory is page-locked.
  virtual void copy(torch::Tensor to, const torch::Tensor& from) = 0;
  virtual ReadyEvent mark() = 0;
};

/// An event in a device's stream. May be used from any thread.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  /// Whether the device has reached it; does not block. Throws c10::Error if the device has failed.
  virtual bool passed() const = 0;
  /// Makes work that the calling thread queues from now on wait for it; the host does not wait.
  virtual void make_stream_wait() const = 0;
  /// Returns a stream whose work begins after it.
  virtual std::unique_ptr<CopyStream> side_queue() const = 0;
};

/// Records an event in the current stream of `device`; null for CPUs, which compute synchronously.
ReadyEvent record_ready(torch::Device device);

/// While it exists, the calling thread's GPU work goes to a separate stream, which begins after the
/// work queued in the current stream so far. record_ready() then records in that stream.
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

/// Blocks until the device has reached `mark`, and as long as it is given up. For the training
/// thread: counts as a wait for other ranks (CollectiveWait).
void wait_for_device(const ReadyEvent& mark);
/// Does the same for everything queued so far.
void wait_for_device(torch::Device device);

/// A tensor being copied to the CPU.
struct HostCopy {
  torch::Tensor tensor;  ///< Holds the values once the device has reached `copied`.
  ReadyEvent copied;     ///< Null for CPUs.
};

/// Queues a copy of `tensor` to page-locked memory; does not block. A CPU tensor is its own
/// copy.
HostCopy begin_to_host(const torch::Tensor& tensor);

/// Returns `tensor` on the CPU, using wait_for_device().
torch::Tensor to_host(const torch::Tensor& tensor);

}  // namespace ddp::train
