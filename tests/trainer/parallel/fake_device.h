// A device whose queues do nothing until the test releases them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "trainer/parallel/device/device_wait.h"

namespace ddp::train::test {

class FakeDevice {
 public:
  class Mark;

  /// The mark that a training step would leave in the device's queue.
  ReadyEvent mark() { return std::make_shared<Mark>(*this); }

  /// Makes the copies that have been queued, and comes to every mark.
  void run() {
    const std::vector<std::function<void()>> queued = std::exchange(copies_, {});
    for (const auto& copy : queued) copy();
    passed_ = true;
  }
  void stand_still() { passed_ = false; }

  std::size_t queued_copies() const { return copies_.size(); }
  int held() const { return held_; }
  /// Called when somebody asks whether a mark has passed.
  std::function<void()> when_asked = [] {};
  /// Called when work is to be queued.
  std::function<void()> when_queued = [] {};

  class Queue final : public CopyStream {
   public:
    explicit Queue(FakeDevice& device) : device_(device) {}
    void copy(torch::Tensor to, const torch::Tensor& from) override {
      device_.copies_.emplace_back([to, from]() mutable { to.copy_(from); });
    }
    ReadyEvent mark() override { return device_.mark(); }

   private:
    FakeDevice& device_;
  };

  class Mark final : public DeviceEvent {
   public:
    explicit Mark(FakeDevice& device) : device_(device) {}
    bool passed() const override {
      device_.when_asked();
      return device_.passed_;
    }
    void make_stream_wait() const override { ++device_.held_; }
    std::unique_ptr<CopyStream> side_queue() const override {
      device_.when_queued();
      return std::make_unique<Queue>(device_);
    }

   private:
    FakeDevice& device_;
  };

 private:
  std::atomic<bool> passed_ = false;
  std::atomic<int> held_ = 0;
  std::vector<std::function<void()>> copies_;  // filled by the thread that copies, while it does
};

}  // namespace ddp::train::test
