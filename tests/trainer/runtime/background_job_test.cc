// A job in two parts on a thread of its own. Also run under ThreadSanitizer.
#include "trainer/runtime/process/background_job.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <stdexcept>
#include <vector>
#include "tests/support/catch.h"

namespace ddp::train {

TEST_CASE("the data may change once the first part is over") {
  BackgroundJob job;
  std::vector<int> data(1000, 0);
  std::vector<int> copy;
  for (int round = 1; round <= 200; ++round) {
    std::fill(data.begin(), data.end(), round);
    int seen = 0;
    job.start({[&] { copy = data; }, [&] { seen = copy.back(); }});
    job.wait_copied();
    std::fill(data.begin(), data.end(), -1);
    job.wait_done();
    CHECK(seen == round);
  }
}

TEST_CASE("the second part does not hold up the caller") {
  BackgroundJob job;
  std::promise<void> gate;
  auto opened = gate.get_future().share();
  job.start({[] {}, [opened] { opened.wait(); }});
  job.wait_copied();
  CHECK(job.busy());
  CHECK_FALSE(job.wait_done_for(0.001));
  gate.set_value();
  CHECK(job.wait_done_for(60.0));
  CHECK_FALSE(job.busy());
}

TEST_CASE("a second job waits for the first one") {
  BackgroundJob job;
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  const auto part = [&] {
    most = std::max(most.load(), ++running);
    --running;
  };
  for (int i = 0; i < 100; ++i) job.start({part, part});
  job.wait_done();
  CHECK(most == 1);
}

TEST_CASE("what a part throws ends the job and is thrown where the caller waits") {
  BackgroundJob job;
  bool wrote = false;
  job.start({[] { throw std::runtime_error("no copy"); }, [&] { wrote = true; }});
  job.wait_done();
  CHECK_THROWS_WITH(job.wait_copied(), "no copy");
  CHECK_FALSE(wrote);
  CHECK_NOTHROW(job.wait_copied());  // once
  job.start({[] {}, [] { throw std::runtime_error("no file"); }});
  job.wait_done();
  CHECK_THROWS_WITH(job.start({[] {}, {}}), "no file");
  job.start({[] {}, [&] { wrote = true; }});
  job.wait_done();
  CHECK(wrote);
}

TEST_CASE("the end waits for the job in hand") {
  std::atomic<bool> done{false};
  {
    BackgroundJob job;
    job.start({[] {}, [&] { done = true; }});
  }
  CHECK(done);
}

}  // namespace ddp::train
