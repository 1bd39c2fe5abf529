// Waiting for a device that may itself wait for a lost rank.
#include "trainer/parallel/device/device_wait.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/trainer/parallel/fake_device.h"
#include "tests/trainer/parallel/probe_output.h"
#include "trainer/parallel/device/collective_wait.h"
#include "trainer/parallel/device/cuda_module.h"
#include "trainer/parallel/device/page_lock.h"

namespace ddp::train {
namespace {

using test::FakeDevice;

/// Takes blocks of up to `limit` bytes.
class FakeCuda final : public CudaModule {
 public:
  explicit FakeCuda(std::size_t limit) : limit_(limit) {}
  bool page_lock(void* memory, std::size_t bytes) override {
    if (bytes > limit_) return false;
    locked.emplace_back(memory, bytes);
    return true;
  }
  void page_unlock(void* memory) override {
    std::erase_if(locked, [&](const auto& block) { return block.first == memory; });
  }
  std::vector<std::pair<void*, std::size_t>> locked;

  int device_count() override { return 1; }
  std::string why_no_device() override { return ""; }
  void set_device(int /*index*/) override {}
  void synchronize() override {}
  std::string uuid(int /*index*/) override { return ""; }
  std::string describe(int /*index*/) override { return ""; }
  std::string versions() override { return ""; }
  int64_t peak_memory_bytes(int /*index*/) override { return 0; }
  int64_t total_memory_bytes(int /*index*/) override { return 0; }
  void limit_memory(int /*index*/, int64_t /*bytes*/) override {}
  int64_t available_memory_bytes(int /*index*/) override { return 0; }
  void release_unused_memory() override {}
  std::unique_ptr<CapturedWork> capture(const std::function<void()>&,
                                        const std::vector<at::Generator>&,
                                        const CapturedWork*) override {
    return nullptr;
  }
  c10::intrusive_ptr<c10d::Backend> connect_nccl(const c10::intrusive_ptr<c10d::Store>& /*store*/,
                                                 int /*rank*/, int /*size*/, c10::Device /*device*/,
                                                 std::chrono::milliseconds /*timeout*/) override {
    return nullptr;
  }
  std::string nccl_error(c10d::Backend& /*backend*/) override { return ""; }

 private:
  std::size_t limit_;
};

}  // namespace

TEST_CASE("a wait for the device asks until it has come to the mark, as a wait for other ranks") {
  FakeDevice device;
  int asked = 0;
  device.when_asked = [&] {
    CHECK(CollectiveWait::current() != 0);
    if (++asked == 5) device.run();
  };
  wait_for_device(device.mark());
  CHECK(asked == 5);
  CHECK(CollectiveWait::current() == 0);
}

TEST_CASE("CPUs are not waited for") {
  CHECK(record_ready(torch::kCPU) == nullptr);
  CHECK(device_came_to(nullptr));
  wait_for_device(torch::Device(torch::kCPU));
  const auto values = torch::arange(3);
  CHECK(to_host(values).is_same(values));
}

TEST_CASE("what a device says after it was given up does not count") {
  FakeDevice device;
  device.run();
  CHECK(device_came_to(device.mark()));
  {
    const DeviceGivenUp given_up;
    CHECK_FALSE(device_came_to(device.mark()));
  }
  CHECK(device_came_to(device.mark()));
}

TEST_CASE("the training thread stays in its wait as long as the device is given up") {
  FakeDevice device;
  device.run();
  std::optional<DeviceGivenUp> given_up(std::in_place);
  std::atomic<bool> asked = false;
  std::atomic<bool> over = false;
  device.when_asked = [&] { asked = true; };
  std::thread other([&] {
    while (!asked) std::this_thread::yield();
    over = true;
    given_up.reset();
  });
  wait_for_device(device.mark());
  CHECK(over);
  other.join();
}

TEST_CASE("a rank under a kernel that waits for a killed peer leaves at the stop of the launcher") {
  const auto [text, status] = test::probe_and_status(2, "spinning_device");
  CHECK(text == "the copy is given up\nleft, as rank 1 is silent\n");
  CHECK(status != 0);
}

TEST_CASE("host memory is page-locked to the byte, and given back") {
  FakeCuda cuda(5000);
  {
    const MappedMemory memory(5000);
    const PageLock lock(&cuda, memory.data(), 5000);
    CHECK(lock.on());
    CHECK(cuda.locked == std::vector<std::pair<void*, std::size_t>>{{memory.data(), 5000}});
  }
  CHECK(cuda.locked.empty());
}

TEST_CASE("memory that CUDA does not lock stays as it is") {
  FakeCuda cuda(4999);
  const MappedMemory memory(5000);
  CHECK_FALSE(PageLock(&cuda, memory.data(), 5000).on());
  CHECK_FALSE(PageLock(nullptr, memory.data(), 5000).on());
  memory.data()[4999] = std::byte{1};
  CHECK(memory.data()[4999] == std::byte{1});
}

}  // namespace ddp::train
