#include "trainer/storage/retry.h"

#include <limits>
#include <thread>
#include "tests/support/catch.h"

#include "trainer/storage/remote_folder.h"

namespace ddp::train {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
constexpr RetrySchedule kQuickRetries{milliseconds(1), milliseconds(2), 2};

TEST_CASE("waits double from the first to the longest, with half of each by chance") {
  const RetrySchedule schedule{milliseconds(100), milliseconds(1000), 2};
  const std::vector<int> whole = {100, 200, 400, 800, 1000, 1000};
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const int failures = static_cast<int>(i) + 1;
    CHECK(schedule.wait(failures, 0) == milliseconds(whole[i] / 2));
    CHECK(schedule.wait(failures, kMost).count() >= whole[i] - 1);
    CHECK(schedule.wait(failures, kMost).count() <= whole[i]);
  }
  CHECK(schedule.wait(0, 0) == milliseconds(50));
  CHECK(schedule.wait(100'000, 0) == milliseconds(500));
}

TEST_CASE("a call that fails for a while is tried until it works") {
  int calls = 0;
  retry(kQuickRetries, milliseconds(10'000), {}, [&] {
    if (++calls < 4) throw RemoteError(RemoteFailure::kAway, "away");
  });
  CHECK(calls == 4);
}

TEST_CASE("what a retry cannot mend is passed on at once") {
  for (const RemoteFailure failure : {RemoteFailure::kRefused, RemoteFailure::kMissing,
                                      RemoteFailure::kLocal, RemoteFailure::kStopped}) {
    int calls = 0;
    CHECK_THROWS_AS(retry(kQuickRetries, milliseconds(10'000), {},
                          [&] {
                            ++calls;
                            throw RemoteError(failure, "no");
                          }),
                    RemoteError);
    CHECK(calls == 1);
  }
}

TEST_CASE("no attempt begins after the limit") {
  int calls = 0;
  const RetrySchedule slow{milliseconds(3'600'000), milliseconds(3'600'000), 2};
  CHECK_THROWS_WITH(retry(slow, milliseconds(1000), {},
                          [&] {
                            ++calls;
                            throw RemoteError(RemoteFailure::kAway, "away");
                          }),
                    "away");
  CHECK(calls == 1);
}

TEST_CASE("a wish to stop ends the wait") {
  std::stop_source stop;
  const RetrySchedule slow{milliseconds(3'600'000), milliseconds(3'600'000), 2};
  std::jthread stopper;
  CHECK_THROWS_AS(retry(slow, milliseconds(36'000'000), stop.get_token(),
                        [&] {
                          stopper = std::jthread([&] { stop.request_stop(); });
                          throw RemoteError(RemoteFailure::kAway, "away");
                        }),
                  RemoteError);
}

}  // namespace
}  // namespace ddp::train
