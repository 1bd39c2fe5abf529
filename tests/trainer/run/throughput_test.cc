#include "trainer/metrics/throughput.h"

#include <chrono>
#include <thread>
#include "tests/support/catch.h"

#include "trainer/metrics/text.h"

namespace ddp::train {

TEST_CASE("numbers are shortened to three digits and a unit") {
  CHECK(short_number(12) == "12");
  CHECK(short_number(9876) == "9.88k");
  CHECK(short_number(27'453'440) == "27.45M");
  CHECK(short_number(1.5e9) == "1.50G");
}

TEST_CASE("what is counted is one or several") {
  CHECK(counted(1, "rank") == "1 rank");
  CHECK(counted(2, "rank") == "2 ranks");
  CHECK(counted(0, "micro-batch") == "0 micro-batches");
  CHECK(counted(0, "epoch") == "0 epochs");
}

TEST_CASE("a lap counts its own tokens and the average all of them") {
  Throughput throughput;
  throughput.add(100);
  CHECK(throughput.lap() > 0);
  CHECK(throughput.lap() == 0);
  CHECK(throughput.average() > 0);
}

// A snapshot of each step stops the clock each time, and the device lags the host by a step.
TEST_CASE("what is still queued on the device when the clock stops counts as training time") {
  constexpr double kQueued = 0.02;  // s, the device's work for a step
  int steps = 0;
  Throughput throughput([&] {
    ++steps;
    std::this_thread::sleep_for(std::chrono::duration<double>(kQueued));
  });
  for (int step = 0; step < 5; ++step) {
    throughput.add(100);
    throughput.pause();
    throughput.resume();
  }
  CHECK(throughput.lap() <= 500 / (5 * kQueued));
  CHECK(steps == 6);
}

}  // namespace ddp::train
