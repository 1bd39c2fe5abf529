// A stop while another rank is lost, and while it is only slow.
#include <signal.h>
#include <unistd.h>

#include "tests/support/catch.h"

#include "tests/e2e/lone_rank.h"
#include "tests/e2e/saved_state.h"
#include "tests/e2e/workers.h"
#include "tests/support/loopback.h"

namespace ddp::test {
namespace {

using Catch::Contains;

std::string peer_fault(const std::string& faults) {
  return "trainer_config.fault_plan=[" + faults + "]";
}

/// Rank 1 stops itself as `faults` say; rank 0 then gets a SIGTERM. Without a launcher nothing else
/// ends it or wakes its peer.
Finished stop_beside_frozen_peer(const Workspace& place, const Words& overrides) {
  const int port = unused_port();
  ChildProgram rank_0(lone_rank(place, 0, 2, port, overrides));
  ChildProgram rank_1(lone_rank(place, 1, 2, port, overrides));
  wait_until_stopped(rank_1.pid());
  rank_0.signal(SIGTERM);
  const int exit = rank_0.wait_exit(kPatience);
  rank_0.wait_all_gone(kPatience);
  CHECK(is_stopped(rank_1.pid()));  // it was not its peer's end that ended rank 0
  return {exit, rank_0.out(), rank_0.err()};
}

}  // namespace

TEST_CASE("a rank that waits for a peer that stands still leaves by itself after SIGTERM") {
  const Workspace place;
  const auto run =
      stop_beside_frozen_peer(place, {peer_fault("'rank=1 step=12 phase=forward kind=stop'"),
                                      "trainer_config.save_every_steps=5"});
  INFO(run.out << run.err);
  CHECK(run.exit == 128 + SIGTERM);
  CHECK_THAT(run.err, Contains("rank 0: stopped by signal 15 while it waited for rank 1, which "
                               "gives no sign of life"));
  CHECK(errors_of(run.err) == Words{});
  CHECK(inspect(place, place.snapshot()).at("step") == 10);
}

TEST_CASE("a snapshot that is being written is finished before a rank leaves") {
  const Workspace place;
  const auto run = stop_beside_frozen_peer(
      place, {peer_fault("'rank=1 step=11 phase=forward kind=stop',"
                         "'rank=0 step=10 phase=writing kind=slow value=5000'"),
              "trainer_config.save_every_steps=10"});
  INFO(run.out << run.err);
  CHECK(run.exit == 128 + SIGTERM);
  CHECK(inspect(place, place.snapshot()).at("step") == 10);
}

TEST_CASE("a rank that is slow, but lives, is waited for: the stop saves") {
  const Workspace place;
  ChildProgram job(
      launched(place, 2,
               {peer_fault("'rank=1 step=13 phase=forward kind=slow value=5000'"),
                "trainer_config.max_steps=100000", "trainer_config.save_every_steps=100000"}));
  job.wait_for("Step 12 | Train", 1, kPatience);
  job.signal(SIGTERM);
  job.wait_all_gone(kPatience);
  INFO(job.out() << job.err());
  CHECK(job.wait_exit(kPatience) == 75);
  CHECK_THAT(job.out(), Contains("Stopped by signal 15 and saved"));
  CHECK_THAT(job.err(), !Contains("no sign of life"));
}

}  // namespace ddp::test
