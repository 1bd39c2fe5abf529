// Two processes of one run: the later one wins.
#include <signal.h>

#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"
#include "tests/e2e/unbroken.h"
#include "tests/e2e/workers.h"

namespace ddp::test {
namespace {

using Catch::Contains;

TEST_CASE("a process that was suspended ends when another one has taken its run over") {
  const Workspace place;
  const Unbroken unbroken(0);
  ChildProgram suspended(
      alone(place, {"trainer_config.max_steps=100000",
                    R"(trainer_config.fault_plan=["step=12 phase=optimizer kind=stop"])"}));
  wait_until_stopped(suspended.pid());
  const auto later = succeed(alone(place));
  CHECK_THAT(later.out, Contains("Resuming training from snapshot"));
  suspended.signal(SIGCONT);
  suspended.wait_all_gone(kPatience);
  INFO(suspended.out() << suspended.err());
  CHECK(suspended.wait_exit(kPatience) == 76);
  CHECK_THAT(suspended.err(), Contains("another process continues this run") &&
                                  Contains("it ends without saving, and nothing is lost"));
  CHECK(errors_of(suspended.err()).size() == 1);
  CHECK(differences(unbroken.snapshot(), place.snapshot()) == Words{});
}

TEST_CASE("an older round of a job neither saves nor starts once a later one has started") {
  const Workspace place;
  const auto in_round = [&](const char* job, const char* epoch, int steps, const Words& more = {}) {
    Words overrides{"trainer_config.max_steps=" + std::to_string(steps)};
    overrides.insert(overrides.end(), more.begin(), more.end());
    ChildOptions options = alone(place, overrides);
    options.set["DDP_ROUND_JOB"] = job;
    options.set["DDP_ROUND_EPOCH"] = epoch;
    return options;
  };
  const auto refuses = [](const std::string& err) {
    CHECK_THAT(err, Contains("a later round of this job continues the run") &&
                        Contains("(epoch 5)") && Contains("older one (epoch 4)"));
    CHECK(errors_of(err).size() == 1);
  };
  ChildProgram older(in_round(
      "a", "4", 100'000, {R"(trainer_config.fault_plan=["step=12 phase=optimizer kind=stop"])"}));
  wait_until_stopped(older.pid());
  succeed(in_round("a", "5", 20));
  older.signal(SIGCONT);
  older.wait_all_gone(kPatience);
  CHECK(older.wait_exit(kPatience) == 76);
  refuses(older.err());
  const auto again = run_to_end(in_round("a", "4", 24));
  CHECK(again.exit == 76);
  refuses(again.err);
  succeed(in_round("a", "6", 24));
  succeed(in_round("a job that was started anew", "0", 28));
}

}  // namespace
}  // namespace ddp::test
