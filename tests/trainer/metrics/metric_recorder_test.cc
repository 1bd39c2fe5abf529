// A recorder stands between steps and disks. Also run under ThreadSanitizer.
#include "trainer/metrics/metric_recorder.h"

#include <future>
#include <mutex>

#include "tests/support/catch.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

struct Seen {
  std::mutex mutex;
  std::vector<int64_t> steps;  // negative: begin_after
  std::vector<int64_t> copy() {
    const std::scoped_lock lock(mutex);
    return steps;
  }
};

/// Waits in its first write until `gate` opens, where there is one.
class FakeSink : public MetricSink {
 public:
  explicit FakeSink(std::shared_ptr<Seen> seen, std::shared_future<void> gate = {},
                    std::promise<void>* reached = nullptr)
      : seen_(std::move(seen)), gate_(std::move(gate)), reached_(reached) {}

  void begin_after(int64_t step) override { see(-1 - step); }
  void write(const MetricRecord& record) override {
    if (reached_ != nullptr) std::exchange(reached_, nullptr)->set_value();
    if (gate_.valid()) gate_.wait();
    see(record.step);
  }

 private:
  void see(int64_t step) {
    const std::scoped_lock lock(seen_->mutex);
    seen_->steps.push_back(step);
  }
  std::shared_ptr<Seen> seen_;
  std::shared_future<void> gate_;
  std::promise<void>* reached_;
};

class FailingSink : public MetricSink {
 public:
  void begin_after(int64_t /*step*/) override {}
  void write(const MetricRecord& /*record*/) override { throw RunError("the disk is full"); }
};

template <class... Sinks>
std::vector<std::unique_ptr<MetricSink>> sinks_of(std::unique_ptr<Sinks>... sinks) {
  std::vector<std::unique_ptr<MetricSink>> all;
  (all.push_back(std::move(sinks)), ...);
  return all;
}

MetricRecord at_step(int64_t step) { return {step, 0.0, "train", {}, 0.0}; }

TEST_CASE("every sink gets every record, in order") {
  const auto one = std::make_shared<Seen>(), two = std::make_shared<Seen>();
  MetricRecorder recorder(
      sinks_of(std::make_unique<FakeSink>(one), std::make_unique<FakeSink>(two)));
  recorder.begin_after(7);
  for (int64_t step = 8; step <= 10; ++step) recorder.write(at_step(step));
  CHECK(recorder.flush());
  CHECK(one->copy() == std::vector<int64_t>{-8, 8, 9, 10});
  CHECK(two->copy() == one->copy());
}

TEST_CASE("what a sink cannot write is said once, and the others go on") {
  const auto seen = std::make_shared<Seen>();
  MetricRecorder recorder(
      sinks_of(std::make_unique<FailingSink>(), std::make_unique<FakeSink>(seen)));
  recorder.write(at_step(1));
  recorder.write(at_step(2));
  CHECK(recorder.flush());
  CHECK(recorder.take_troubles() == std::vector<std::string>{"the disk is full"});
  recorder.write(at_step(3));
  CHECK(recorder.flush());
  CHECK(recorder.take_troubles().empty());
  CHECK(seen->copy() == std::vector<int64_t>{1, 2, 3});
}

TEST_CASE("a disk that stands still holds nobody up, and what is lost is counted") {
  const auto seen = std::make_shared<Seen>();
  std::promise<void> gate, reached;
  MetricRecorder recorder(
      sinks_of(std::make_unique<FakeSink>(seen, gate.get_future().share(), &reached)));
  recorder.write(at_step(1));
  reached.get_future().wait();
  const auto most = static_cast<int64_t>(MetricRecorder::kMostWaiting);
  for (int64_t step = 2; step <= most + 4; ++step) recorder.write(at_step(step));
  recorder.begin_after(1);  // never lost
  CHECK(recorder.take_troubles() ==
        std::vector<std::string>{"3 metric records lost: the disk does not take them in time"});
  gate.set_value();
  CHECK(recorder.flush());
  const auto steps = seen->copy();
  CHECK(steps.size() == MetricRecorder::kMostWaiting + 2);
  CHECK(steps.back() == -2);
}

TEST_CASE("a recorder without sinks takes records for nothing") {
  MetricRecorder recorder({});
  CHECK(recorder.empty());
  recorder.begin_after(0);
  recorder.write(at_step(1));
  CHECK(recorder.flush());
  CHECK(recorder.take_troubles().empty());
}

}  // namespace
}  // namespace ddp::train
