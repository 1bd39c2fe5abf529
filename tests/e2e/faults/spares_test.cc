// ddp-run --warm-spares with trainer: a restarted group is one that was there before, and nothing
// else about the run changes.
#include <signal.h>

#include <algorithm>
#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"
#include "tests/e2e/workers.h"

namespace ddp::test {
namespace {

using Catch::Contains;

// Every attempt but the last hangs in a step, so that its spares are ready when it is
// killed.
const Words kStandStill = {
    R"(trainer_config.fault_plan=["rank=1 step=12 kind=hang","rank=0 step=24 kind=hang attempt=1"])",
    "distributed_config.hang_timeout_s=0"};

TEST_CASE("a job that is killed twice and goes on with warm spares ends as the unbroken one") {
  const Workspace unbroken, place;
  const std::string copies = "trainer_config.ram_snapshots=true";
  succeed(launched(unbroken, 2, {copies}));
  Words overrides = kStandStill;
  overrides.push_back(copies);
  ChildProgram job(launched(place, 2, overrides, {"--max_restarts=2", "--warm-spares"}));
  job.wait_for("standby workers: 2 processes, ", 1, kPatience);
  const auto early = spare_pids(place);
  CHECK(early.size() == 2);
  ::kill(worker_pid(place, 1), SIGKILL);
  job.wait_for("Start: ", 2, kPatience);  // after the first step
  const auto now = spare_pids(place);
  for (const pid_t pid : early) CHECK(std::count(now.begin(), now.end(), pid) == 1);
  ::kill(early.front(), SIGKILL);
  CHECK(job.wait_exit(kPatience) == 0);
  INFO(job.out() << job.err());
  CHECK_THAT(job.err(), Contains("restart 2 of 2"));
  CHECK(differences(unbroken.snapshot(), place.snapshot()) == Words{});
  CHECK(content_sha256(unbroken) == content_sha256(place));
}

}  // namespace
}  // namespace ddp::test
