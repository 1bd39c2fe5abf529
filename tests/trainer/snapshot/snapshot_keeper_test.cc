// Saving in the background.
#include "trainer/snapshot/snapshot_keeper.h"

#include <cmath>
#include <stdexcept>
#include "tests/support/catch.h"

#include "launcher/worker_contract.h"
#include "tests/trainer/parallel/fake_device.h"
#include "tests/trainer/snapshot/snapshot_files.h"
#include "tests/trainer/test_model.h"
#include "trainer/runtime/error.h"
#include "trainer/snapshot/snapshot_interval.h"

namespace ddp::train {
namespace {

using test::sample_meta;
using test::TempDir;

/// A keeper with a state of one tensor that holds the number of its step.
struct Saving {
  explicit Saving(Config c = {}) : config(std::move(c)), folder(dir.file("s.pt"), 2, log) {}

  TrainingState state(int64_t step) {
    weights.fill_(static_cast<float>(step));
    return {sample_meta(step), {{"model.w", weights}}, nullptr};
  }
  std::string said() {
    log.flush_file();
    return test::read_file(dir.file("log"));
  }
  int64_t saved_step() const { return open_snapshot(folder.path()).meta.step; }
  float saved_value() const {
    auto value = torch::zeros({1000});
    open_snapshot(folder.path()).load_into("model.w", value);
    return value[999].item<float>();
  }

  TempDir dir;
  Config config;
  Log log{true, dir.file("log")};
  SnapshotFolder folder;
  RunMonitor monitor{config, 0, 1, false};
  torch::Tensor weights = torch::zeros({1000});
  SnapshotKeeper keeper{config.trainer, folder, nullptr, monitor, log, {}};
};

Config with_faults(const std::vector<std::string>& faults) {
  Config config;
  config.trainer.fault_plan = faults;
  return config;
}

}  // namespace

TEST_CASE("what is saved is the state before the update, however late it is written") {
  Saving run;
  for (int64_t step = 1; step <= 50; ++step) {
    REQUIRE(run.keeper.save(run.state(step), SaveReason::kFixed));
    run.keeper.before_update();
    run.weights.fill_(-1.0F);  // the update
    run.keeper.wait();
    CHECK(run.saved_step() == step);
    CHECK(run.saved_value() == static_cast<float>(step));
  }
  CHECK(run.keeper.counts().saved == 50);
}

TEST_CASE("a state that is a copy is written as it is, and freed once it has been written") {
  Saving run;
  std::vector<float> values(1000, 3.0F);
  int freed = 0;
  const auto copy = [&] {
    TrainingState state = run.state(3);
    state.tensors = {
        {"model.w", torch::from_blob(
                        values.data(), {1000}, [&freed](void*) { ++freed; }, torch::kFloat32)}};
    state.is_copy = true;
    return state;
  };
  REQUIRE(run.keeper.save(copy(), SaveReason::kFixed));
  run.keeper.before_update();
  run.keeper.wait();
  CHECK(freed == 1);
  CHECK(run.saved_step() == 3);
  CHECK(run.saved_value() == 3.0F);
  REQUIRE(run.keeper.save(run.state(4), SaveReason::kFixed));
  run.keeper.wait();
  CHECK(run.saved_value() == 4.0F);
  values.back() = NAN;
  run.keeper.save(copy(), SaveReason::kFixed);
  run.keeper.wait();
  CHECK_THROWS_WITH(run.keeper.before_update(), Catch::Contains("tensor model.w contains NaN"));
  CHECK(freed == 2);
}

TEST_CASE("a copy from a device holds up the device's next update, not the host") {
  Saving run;
  test::FakeDevice device;
  TrainingState state = run.state(1);
  state.ready = device.mark();
  REQUIRE(run.keeper.save(state, SaveReason::kFixed));
  run.keeper.before_update();  // though the device has done nothing yet
  CHECK(device.held() == 1);
  CHECK(device.queued_copies() == 1);
  CHECK(run.keeper.counts().saved == 0);
  device.run();
  run.weights.fill_(-1.0F);  // the update, after the copy
  run.keeper.wait();
  CHECK(run.saved_step() == 1);
  CHECK(run.saved_value() == 1.0F);
}

TEST_CASE("a copy that waits for a rank that is gone is given up, and the next one is taken") {
  Saving run;
  test::FakeDevice device;
  TrainingState state = run.state(1);
  state.ready = device.mark();
  run.keeper.save(state, SaveReason::kFixed);
  {
    const DeviceGivenUp given_up;
    run.keeper.finish_writing();
  }
  CHECK(run.keeper.counts().failed == 1);
  CHECK(run.folder.entries().empty());
  CHECK_THAT(run.said(), Catch::Contains("the GPU waits for a rank that has exited"));
  device.run();
  run.keeper.save(run.state(2), SaveReason::kFixed);
  run.keeper.wait();
  CHECK(run.saved_step() == 2);
}

TEST_CASE("a device that fails while it is copied fails the run before its next update") {
  Saving run;
  test::FakeDevice device;
  TrainingState state = run.state(1);
  state.ready = device.mark();
  device.when_queued = [] { throw std::runtime_error("an illegal address"); };
  run.keeper.save(state, SaveReason::kFixed);
  run.keeper.finish_writing();
  CHECK_THROWS_WITH(run.keeper.before_update(), "an illegal address");
}

TEST_CASE("copies in memory of a device's state do not queue up behind their digests") {
  const TempDir shared;
  ::setenv(launch::kShmDir, shared.path().c_str(), 1);
  Config config;
  config.trainer.ram_snapshots = true;
  Saving run(config);
  test::FakeDevice device;
  TrainingState state = run.state(1);
  state.ready = device.mark();
  REQUIRE(run.keeper.wants_memory_copy(/*on_device=*/true));
  run.keeper.save_to_memory(state);
  run.keeper.before_update();
  CHECK(device.held() == 1);
  CHECK_FALSE(run.keeper.wants_memory_copy(/*on_device=*/true));
  CHECK(run.keeper.wants_memory_copy(/*on_device=*/false));  // CPUs copy every step
  device.run();
  run.keeper.finish_writing();
  CHECK(run.keeper.wants_memory_copy(/*on_device=*/true));
  CHECK(run.keeper.counts().in_memory == 1);
  ::unsetenv(launch::kShmDir);
}

// On a device that is where the host waits: for all that has been queued.
TEST_CASE("the time that capturing a state takes is a stall of its save, and of no other") {
  Saving run;
  run.keeper.before_update();
  CHECK(run.keeper.counts().longest_stall == 0.0);  // without a save
  run.keeper.count_capture(100.0);
  run.keeper.save(run.state(1), SaveReason::kFixed);
  run.keeper.before_update();
  CHECK(run.keeper.counts().stall_seconds > 100.0);
  const double longest = run.keeper.counts().longest_stall;
  CHECK(longest > 100.0);
  run.keeper.save(run.state(2), SaveReason::kFixed);
  run.keeper.before_update();
  CHECK(run.keeper.counts().longest_stall == longest);
}

TEST_CASE("a snapshot that is due while another is written is skipped, or waits, as asked") {
  Saving run(with_faults({"step=1 phase=writing kind=slow value=50"}));
  REQUIRE(run.keeper.save(run.state(1), SaveReason::kInterval));
  run.keeper.before_update();
  CHECK_FALSE(run.keeper.save(run.state(2), SaveReason::kInterval));
  REQUIRE(run.keeper.save(run.state(3), SaveReason::kFixed));
  run.keeper.wait();
  CHECK(run.saved_step() == 3);
  CHECK(run.keeper.counts().skipped == 1);
  CHECK(run.keeper.counts().saved == 2);
}

TEST_CASE("a snapshot of the interval that may not be skipped waits for the one before") {
  auto config = with_faults({"step=1 phase=writing kind=slow value=50"});
  config.trainer.snapshot_if_busy = IfBusy::kWait;
  Saving run(config);
  REQUIRE(run.keeper.save(run.state(1), SaveReason::kInterval));
  REQUIRE(run.keeper.save(run.state(2), SaveReason::kInterval));
  run.keeper.wait();
  CHECK(run.saved_step() == 2);
  CHECK(run.keeper.counts().skipped == 0);
}

TEST_CASE("automatic snapshots do not bury the log, fixed ones and the first are always said") {
  Saving run;
  REQUIRE(run.config.trainer.snapshot_every.automatic);
  for (int64_t step = 1; step <= 9; ++step) {
    run.keeper.save(run.state(step), SaveReason::kInterval);
    run.keeper.wait();
  }
  run.keeper.finish(run.state(10));
  const std::string said = run.said();
  CHECK_THAT(said, Catch::Contains("step 1: ") && !Catch::Contains("step 2: ") &&
                       !Catch::Contains("step 9: "));
  CHECK_THAT(said,
             Catch::Contains("step 10: ") && Catch::Contains("; 8 more since the last message)"));
}

TEST_CASE("a full disk costs one snapshot, not the run, and the last good one stays") {
  Saving run(with_faults({"step=2 kind=disk_full"}));
  run.keeper.save(run.state(1), SaveReason::kFixed);
  run.keeper.save(run.state(2), SaveReason::kFixed);
  run.keeper.wait();
  CHECK(run.saved_step() == 1);
  CHECK(run.keeper.counts().failed == 1);
  run.keeper.save(run.state(3), SaveReason::kFixed);
  run.keeper.finish(run.state(3));
  CHECK(run.saved_step() == 3);
}

TEST_CASE("a disk that is full before the first snapshot promises no older one") {
  Saving run(with_faults({"step=1 kind=disk_full"}));
  CHECK_THROWS_WITH(run.keeper.finish(run.state(1)),
                    Catch::Contains("which holds no snapshot yet"));
}

TEST_CASE("the last state is tried twice, then the run fails and says what is left") {
  Saving run(with_faults({"step=2 kind=disk_full"}));
  run.keeper.finish(run.state(1));
  CHECK_THROWS_WITH(run.keeper.finish(run.state(2)),
                    Catch::Contains("(step 2)") && Catch::Contains("free space"));
  CHECK(run.saved_step() == 1);
  CHECK(run.keeper.counts().failed == 2);
}

TEST_CASE("NaN is never saved, and the run hears of it") {
  Saving run;
  run.keeper.finish(run.state(1));
  auto broken = run.state(2);
  run.weights[17] = std::nan("");
  run.keeper.save(broken, SaveReason::kFixed);
  run.keeper.wait();
  CHECK_THROWS_WITH(run.keeper.before_update(), Catch::Contains("model.w contains NaN or Inf"));
  CHECK(run.saved_step() == 1);
}

TEST_CASE("a bit that a bad disk flips is found by the next reader") {
  Saving run(with_faults({"step=2 kind=corrupt"}));
  run.keeper.finish(run.state(1));
  run.keeper.finish(run.state(2));
  CHECK_THROWS_AS(run.saved_step(), RunError);
  CHECK(run.folder.find()->meta.step == 1);
}

TEST_CASE("snapshot_every counts steps, or lets the overhead decide") {
  Config config;
  config.trainer.snapshot_every = {false, 5.0};
  Saving fixed(config);
  CHECK(fixed.keeper.due(5));
  CHECK_FALSE(fixed.keeper.due(6));
  config.trainer.snapshot_every = {false, 0.0};
  CHECK_FALSE(Saving(config).keeper.due(5));
}

TEST_CASE("automatic snapshots keep a least interval, and spare training, the disk and its life") {
  TrainerConfig config;  // overhead 1 %, 60 s, a tenth of the disk's time, 40 GB an hour
  CHECK(snapshot_interval({}, config) == 60.0);
  CHECK(snapshot_interval({0.06, 0.3, 10'000'000}, config) == 60.0);  // as in the quickstart
  CHECK(snapshot_interval({2.0, 3.0, 10'000'000}, config) == 200.0);
  CHECK(snapshot_interval({0.1, 30.0, 10'000'000}, config) == 300.0);
  CHECK(snapshot_interval({0.1, 3.0, 1'500'000'000}, config) == 135.0);  // 124 million parameters
  config.snapshot_gb_per_hour = 0.0;
  CHECK(snapshot_interval({0.1, 3.0, 1'500'000'000}, config) == 60.0);
  config.snapshot_min_interval_s = 0.0;
  CHECK(snapshot_interval({0.0, 0.0, 1'500'000'000}, config) == 0.0);
}

TEST_CASE("the first automatic snapshot waits for the least interval, too") {
  Config config;
  Saving run(config);
  CHECK_FALSE(run.keeper.due(1));
  config.trainer.snapshot_min_interval_s = 0.0;
  Saving at_once(config);
  CHECK(at_once.keeper.due(1));
  at_once.keeper.save(at_once.state(1), SaveReason::kInterval);
  at_once.keeper.wait();
  CHECK(at_once.keeper.counts().saved == 1);
}

}  // namespace ddp::train
