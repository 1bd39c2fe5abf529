// trainer's ranks meet at the store that ddp-run has served, or at rank 0's: the numbers are the
// same.
#include <csignal>
#include "tests/support/catch.h"

#include "tests/e2e/job.h"
#include "tests/e2e/saved_state.h"
#include "tests/e2e/workers.h"

namespace ddp::test {
namespace {

const Words kShort{"trainer_config.max_steps=6"};

TEST_CASE("two ranks that meet at ddp-run's store learn what they learn at rank 0's") {
  const Workspace by_agent, by_rank0;
  succeed(launched(by_agent, 2, kShort));
  auto rank0 = launched(by_rank0, 2, kShort);
  rank0.set["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1";
  succeed(rank0);
  CHECK(content_sha256(by_agent) == content_sha256(by_rank0));
}

TEST_CASE("a group that lost rank 0 meets again at a new store") {
  const Workspace place;
  ChildProgram job(launched(place, 2, {}, {"--max_restarts=1"}));
  job.wait_for("| Step 7 ", 1, kPatience);
  const pid_t rank0 = worker_pid(place, 0);
  REQUIRE(rank0 > 0);
  ::kill(rank0, SIGKILL);
  CHECK(job.wait_exit(kPatience) == 0);
  CHECK_THAT(job.err(), Catch::Contains("killed by SIGKILL; restart 1 of 1"));
  CHECK(steps_of(job.out()).count(40) == 1);
}

}  // namespace
}  // namespace ddp::test
