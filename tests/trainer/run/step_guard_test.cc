#include "trainer/run/step_guard.h"

#include <cmath>
#include "tests/support/catch.h"

#include "trainer/runtime/error.h"

namespace ddp::train {

TEST_CASE("NaN and Inf in loss or norm are bad, with and without a watch for spikes") {
  for (const double factor : {0.0, 3.0}) {
    StepGuard guard(factor);
    CHECK(guard.judge(1.0, 1.0) == StepVerdict::kGood);
    CHECK(guard.judge(std::nan(""), 1.0) == StepVerdict::kNotFinite);
    CHECK(guard.judge(1.0, HUGE_VAL) == StepVerdict::kNotFinite);
  }
}

TEST_CASE("a spike is above the factor times the median of what was good, once enough is known") {
  StepGuard guard(3.0);
  CHECK(guard.judge(1000.0, 1.0) == StepVerdict::kGood);  // nothing to compare with yet
  for (int i = 0; i < 15; ++i) CHECK(guard.judge(2.0, 1.0) == StepVerdict::kGood);
  CHECK(guard.judge(5.9, 2.9) == StepVerdict::kGood);
  CHECK(guard.judge(6.1, 1.0) == StepVerdict::kSpike);
  CHECK(guard.judge(2.0, 3.1) == StepVerdict::kSpike);
  CHECK(guard.judge(2.0, 1.0) == StepVerdict::kGood);
}

TEST_CASE("without a factor nothing finite is a spike") {
  StepGuard guard(0.0);
  for (int i = 0; i < 40; ++i) guard.judge(1.0, 1.0);
  CHECK(guard.judge(1e30, 1e30) == StepVerdict::kGood);
}

TEST_CASE("bad steps in a row are counted up to the last good one") {
  StepGuard guard(0.0);
  for (const int64_t step : {3, 5, 6, 7}) guard.count_bad(step);
  CHECK(guard.bad_in_a_row(7) == 3);
  CHECK(guard.bad_in_a_row(8) == 0);
  CHECK(guard.bad_in_a_row(3) == 1);
}

TEST_CASE("a guard that was stored judges as the one that was not") {
  StepGuard whole(2.0);
  StepGuard first(2.0);
  const auto loss = [](int i) { return 1.0 + 0.1 * std::sin(i) + (i % 29 == 28 ? 5.0 : 0.0); };
  for (int i = 0; i < 50; ++i) {
    whole.judge(loss(i), 1.0);
    first.judge(loss(i), 1.0);
  }
  first.leave_out(7);
  first.count_bad(9);
  StepGuard second(2.0);
  second.load_state(first.state());
  CHECK(second.leaves_out(7));
  CHECK_FALSE(second.leaves_out(8));
  CHECK(second.bad_steps() == 1);
  for (int i = 50; i < 200; ++i) CHECK(whole.judge(loss(i), 1.0) == second.judge(loss(i), 1.0));
}

TEST_CASE("the state of a new run is empty, and a damaged one is refused") {
  StepGuard guard(2.0);
  guard.load_state("");
  CHECK(guard.bad_steps() == 0);
  CHECK_THROWS_AS(guard.load_state("{"), RunError);
  CHECK_THROWS_AS(guard.load_state(R"({"losses": "x"})"), RunError);
}

TEST_CASE("after going back, what was found bad since stays known") {
  StepGuard now(2.0);
  now.leave_out(5);
  now.count_bad(5);
  StepGuard restored(2.0);
  restored.leave_out(3);
  restored.remember(now);
  CHECK(restored.leaves_out(3));
  CHECK(restored.leaves_out(5));
  CHECK(restored.bad_steps() == 1);
}

TEST_CASE("rollbacks end when ten in a row have not led beyond the furthest good step") {
  RollbackLimit limit;
  limit.good_step(12);
  for (int i = 0; i < RollbackLimit::kMost; ++i) {
    CHECK(limit.allows_another());
    limit.good_step(11);  // made again
  }
  CHECK_FALSE(limit.allows_another());
}

TEST_CASE("a rollback that leads on is not counted with those before it") {
  RollbackLimit limit;
  for (int64_t step = 1; step < 100; ++step) {
    limit.good_step(step);
    CHECK(limit.allows_another());
  }
}

}  // namespace ddp::train
