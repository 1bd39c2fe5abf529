#include "trainer/parallel/device/device_wait.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "trainer/parallel/device/collective_wait.h"

namespace ddp::train {
namespace {

using c10::impl::VirtualGuardImpl;

std::atomic<int> devices_given_up{0};

class StreamMark final : public DeviceEvent {
 public:
  explicit StreamMark(c10::Stream stream) : event_(stream.device_type()) { event_.record(stream); }

  bool passed() const override { return event_.query(); }
  void make_stream_wait() const override {
    event_.block(VirtualGuardImpl(event_.device_type()).getStream(event_.device()));
  }
  std::unique_ptr<CopyStream> side_queue() const override;

 private:
  c10::Event event_;
};

class StreamQueue final : public CopyStream {
 public:
  explicit StreamQueue(c10::Stream stream) : stream_(stream) {}

  void copy(torch::Tensor to, const torch::Tensor& from) override {
    const c10::StreamGuard guard(stream_);
    to.copy_(from, /*non_blocking=*/true);
  }
  ReadyEvent mark() override { return std::make_shared<StreamMark>(stream_); }

 private:
  c10::Stream stream_;
};

c10::Stream stream_after(const c10::Event& event) {
  const VirtualGuardImpl device(event.device_type());
  const c10::Stream stream = device.getStreamFromGlobalPool(event.device());
  event.block(stream);
  return stream;
}

std::unique_ptr<CopyStream> StreamMark::side_queue() const {
  return std::make_unique<StreamQueue>(stream_after(event_));
}

/// Waits between two questions: short at first, for what is nearly there.
class Pauses {
 public:
  void wait() {
    std::this_thread::sleep_for(next_);
    next_ = std::min<std::chrono::microseconds>(2 * next_, kLongest);
  }

 private:
  static constexpr std::chrono::microseconds kLongest{500};
  std::chrono::microseconds next_{10};
};

}  // namespace

ReadyEvent record_ready(torch::Device device) {
  if (device.is_cpu()) return nullptr;
  return std::make_shared<StreamMark>(VirtualGuardImpl(device.type()).getStream(device));
}

SideQueue::SideQueue(torch::Device device)
    : guard_([device] {
        c10::Event here(device.type());
        here.record(VirtualGuardImpl(device.type()).getStream(device));
        return stream_after(here);
      }()) {}

DeviceGivenUp::DeviceGivenUp() { ++devices_given_up; }
DeviceGivenUp::~DeviceGivenUp() { --devices_given_up; }
bool DeviceGivenUp::now() { return devices_given_up > 0; }

void DeviceGivenUp::stay() {
  for (Pauses pauses; now();) pauses.wait();
}

// Asked in this order: what had passed before it was given up was computed with all ranks.
bool device_came_to(const ReadyEvent& mark) {
  if (!mark) return true;
  for (Pauses pauses;; pauses.wait()) {
    const bool passed = mark->passed();
    if (DeviceGivenUp::now()) return false;
    if (passed) return true;
  }
}

void wait_for_device(const ReadyEvent& mark) {
  if (!mark) return;
  const CollectiveWait waiting;
  while (!device_came_to(mark)) DeviceGivenUp::stay();
}

void wait_for_device(torch::Device device) { wait_for_device(record_ready(device)); }

// To page-locked memory: the copy is part of what the device has to come to.
HostCopy begin_to_host(const torch::Tensor& tensor) {
  if (tensor.is_cpu()) return {tensor, nullptr};
  auto host =
      torch::empty(tensor.sizes(),
                   tensor.options().device(torch::kCPU).requires_grad(false).pinned_memory(true));
  host.copy_(tensor.detach(), /*non_blocking=*/true);
  return {host, record_ready(tensor.device())};
}

torch::Tensor to_host(const torch::Tensor& tensor) {
  const HostCopy copy = begin_to_host(tensor);
  wait_for_device(copy.copied);
  return copy.tensor;
}

}  // namespace ddp::train
