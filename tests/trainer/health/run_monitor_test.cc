// What a rank promises to the launcher: the next sign of life within so many seconds.
#include "trainer/health/run_monitor.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include "tests/support/catch.h"

#include "tests/trainer/test_model.h"

namespace ddp::train {
namespace {

StepTimes times_of(const std::vector<double>& seconds) {
  StepTimes times;
  for (const double one : seconds) times.add(one);
  return times;
}

/// The last heartbeat's promise, or "" when it makes none.
std::string promise_in(const std::string& file) {
  const std::string text = test::read_file(file);
  const auto at = text.find(" timeout=");
  return at == std::string::npos ? "" : text.substr(at + 9, text.find(' ', at + 9) - at - 9);
}

/// Where the heartbeats of a test go.
struct HeartbeatFile {
  HeartbeatFile() { ::setenv("DDP_HEARTBEAT_FILE", file.c_str(), 1); }
  ~HeartbeatFile() { ::unsetenv("DDP_HEARTBEAT_FILE"); }

  const test::TempDir dir;
  const std::string file = dir.file("beat");
};

}  // namespace

TEST_CASE("the automatic promise is 5 median steps, and 3 s at least") {
  CHECK(automatic_promise(times_of({.1, .1, .1, .1, .1, .1}), false) == 3.0);
  CHECK(automatic_promise(times_of({1, 2, 2, 2, 3, 60}), false) == 10.0);
  CHECK(automatic_promise(times_of({1, 2, 2, 2, 3, 60}), true) == 300.0);  // the longest: on a GPU
}

TEST_CASE("before five steps the promise is a generous one") {
  CHECK(automatic_promise({}, false) == 60.0);
  CHECK(automatic_promise({}, true) == 300.0);
  CHECK(automatic_promise(times_of({.1}), false) == 20.0);
  CHECK(automatic_promise(times_of({.1, 8, .1, .1}), false) == 40.0);
}

TEST_CASE_METHOD(HeartbeatFile, "each heartbeat carries the promise that holds at its time") {
  Config config;
  RunMonitor automatic(config, 0, 2, false);
  CHECK(promise_in(file) == "60.0");
  for (int step = 1; step <= 5; ++step) {
    automatic.begin_step(step);
    automatic.enter(Phase::kForward);
    CHECK(promise_in(file) == (step == 1 ? "60.0" : "20.0"));
    automatic.end_step();
  }
  automatic.enter(Phase::kForward);
  CHECK(promise_in(file) == "3.0");
  automatic.enter_for(Phase::kWriting, 60.0);
  CHECK(promise_in(file) == "60.0");
  automatic.enter_for(Phase::kEnd, 0.0);
  CHECK(promise_in(file) == "");

  config.distributed.hang_timeout_s.automatic = false;
  config.distributed.hang_timeout_s.value = 7.0;
  RunMonitor given(config, 0, 2, false);
  given.enter(Phase::kForward);
  CHECK(promise_in(file) == "7.0");
  config.distributed.hang_timeout_s.value = 0.0;
  RunMonitor off(config, 0, 2, false);
  off.enter(Phase::kForward);
  CHECK(promise_in(file) == "");
}

TEST_CASE_METHOD(HeartbeatFile,
                 "after a step heartbeats have its times, but not the time of waiting for others") {
  Config config;
  config.trainer.fault_plan = {"step=1 phase=data kind=slow value=40",
                               "step=1 phase=backward kind=slow value=400"};
  RunMonitor monitor(config, 0, 2, false);
  const auto began = std::chrono::steady_clock::now();
  monitor.begin_step(1);
  for (const Phase phase : {Phase::kData, Phase::kForward, Phase::kBackward, Phase::kOptimizer}) {
    monitor.enter(phase);
    CHECK_THAT(test::read_file(file), !Catch::Contains("times="));
  }
  monitor.end_step();
  const std::chrono::duration<double> whole = std::chrono::steady_clock::now() - began;
  monitor.begin_step(2);
  monitor.enter(Phase::kOptimizer);
  double data = 0, forward = 0;
  const std::string text = test::read_file(file);
  const auto at = text.find(" times=");
  REQUIRE(at != std::string::npos);
  REQUIRE(std::sscanf(text.c_str() + at, " times=data:%lf,forward:%lf ", &data, &forward) == 2);
  CHECK(data >= 0.04);
  CHECK(data + forward < whole.count() - 0.39);  // its digits are rounded
  RunMonitor alone(config, 0, 1, false);
  alone.begin_step(2);
  alone.end_step();
  alone.enter(Phase::kData);
  CHECK_THAT(test::read_file(file), !Catch::Contains("times="));
}

TEST_CASE_METHOD(HeartbeatFile, "work between steps has a promise of its own, which ends with it") {
  Config config;
  config.distributed.hang_timeout_s = {false, 7.0};
  RunMonitor monitor(config, 0, 2, false);
  {
    const RunMonitor::LongWork work(monitor, 60.0);
    {
      const RunMonitor::LongWork piece(monitor, 30.0);
      monitor.enter(Phase::kEvaluation);
      CHECK(promise_in(file) == "60.0");
    }
    monitor.enter_for(Phase::kWriting, 90.0);
    CHECK(promise_in(file) == "90.0");
    monitor.enter_for(Phase::kEnd, 0.0);
    CHECK(promise_in(file) == "");
  }
  monitor.enter(Phase::kData);
  CHECK(promise_in(file) == "7.0");
  monitor.expect_delay(60.0);
  monitor.begin_step(1);
  monitor.enter(Phase::kBackward, "gradients_all_reduce");
  CHECK(promise_in(file) == "60.0");
  monitor.end_step();
  monitor.enter(Phase::kData);
  CHECK(promise_in(file) == "7.0");
}

TEST_CASE_METHOD(HeartbeatFile,
                 "a start is promised more time than a step, and every rank promises it at once") {
  beat_at_start(promise_of_start(/*gpu=*/false));
  CHECK(test::read_file(file).starts_with("step=0 phase=start collective=none timeout=60.0 "));
  CHECK_THAT(test::read_file(file), Catch::Contains(" ranks=all"));
  beat_at_start(0.0);
  CHECK(promise_in(file) == "");
  Config config;
  const auto joining = [&](double limit) {
    config.distributed.hang_timeout_s = {false, limit};
    RunMonitor monitor(config, 0, 2, false);
    monitor.joining();
    CHECK_THAT(test::read_file(file), Catch::Contains(limit > 0 ? "waiting=group" : "phase=start"));
    return promise_in(file);
  };
  CHECK(joining(1.0) == "30.0");
  CHECK(joining(50.0) == "50.0");
  CHECK(joining(0.0) == "");
  for (const bool gpu : {false, true}) {
    RunMonitor monitor(Config(), 0, 2, gpu);
    monitor.joining();
    CHECK(promise_in(file) == (gpu ? "300.0" : "60.0"));
    monitor.started("group");
    CHECK(promise_in(file) == (gpu ? "300.0" : "60.0"));
  }
  config.distributed.hang_timeout_s = {false, 600.0};
  RunMonitor patient(config, 0, 2, false);
  patient.starting(/*unlimited=*/false);
  CHECK(promise_in(file) == "600.0");
}

TEST_CASE("a start makes progress by one percent of a CPU, a read, or many short waits") {
  CHECK_FALSE(makes_progress({0.009, 0}, 1.0));
  CHECK(makes_progress({0.01, 0}, 1.0));
  CHECK_FALSE(makes_progress({0.01, 0}, 2.0));  // a look that came late
  CHECK(makes_progress({0.0, 1}, 1.0));
  CHECK_FALSE(makes_progress({0.0, 0, 19}, 1.0));
  CHECK(makes_progress({0.0, 0, 20}, 1.0));
}

TEST_CASE_METHOD(
    HeartbeatFile,
    "a start that computes or waits for its peers repeats its heartbeat, one that stands still "
    "does not") {
  static std::atomic<uint64_t> waits;  // read by a plain function
  waits = 0;
  RunMonitor monitor(Config(), 0, 2, false, StartTimes(), [] { return waits.load(); });
  monitor.started("group");
  const auto empty = [&] { std::filesystem::resize_file(file, 0); };
  const auto repeated = [&] { return std::filesystem::file_size(file) > 0; };
  std::this_thread::sleep_for(StartPulse::kLook);  // the work of this test's start is past
  empty();
  std::this_thread::sleep_for(2 * StartPulse::kLook);
  CHECK_FALSE(repeated());
  while (!repeated()) {  // computes
  }
  CHECK(promise_in(file) == "60.0");
  waits = 7;
  while (test::read_file(file).find(" waiting=") == std::string::npos)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK_THAT(test::read_file(file),
             Catch::Contains("phase=start") && Catch::Contains(" waiting=peers"));
  waits = 0;
  monitor.begin_step(1);
  monitor.enter(Phase::kForward);
  empty();
  while (!repeated()) {
  }
  monitor.end_step();
  monitor.enter(Phase::kForward);
  empty();
  const auto end = std::chrono::steady_clock::now() + 2 * StartPulse::kLook;
  while (std::chrono::steady_clock::now() < end) {
  }
  CHECK_FALSE(repeated());  // a step is judged by those before it
}

TEST_CASE_METHOD(HeartbeatFile, "a limit of milliseconds is not rounded to none") {
  Config config;
  config.distributed.hang_timeout_s = {false, 0.0004};
  RunMonitor monitor(config, 0, 2, false);
  monitor.enter(Phase::kForward);
  CHECK(promise_in(file) == "0.1");
}

TEST_CASE_METHOD(HeartbeatFile, "who ends in an error may take its time to say it") {
  {
    RunMonitor monitor(Config(), 0, 2, false);
    monitor.enter(Phase::kForward);
    CHECK(promise_in(file) == "60.0");
  }
  CHECK(promise_in(file) == "");
}

}  // namespace ddp::train
