// Two processes of one run: the later one wins.
#include <signal.h>

#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"
#include "tests/e2e/workers.h"

namespace ddp::test {
namespace {

using Catch::Contains;

TEST_CASE("a process that was suspended ends when another one has taken its run over") {
  const Workspace unbroken, place;
  succeed(alone(unbroken));
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

}  // namespace
}  // namespace ddp::test
