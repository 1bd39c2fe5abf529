// Ranks that stop or hang are found, named and restarted; slow ones are left alone.
#include <algorithm>
#include <filesystem>
#include "tests/support/catch.h"

#include "tests/e2e/faults.h"
#include "tests/e2e/unbroken.h"

namespace ddp::test {
namespace {

using Catch::Contains;

TEST_CASE("a stopped rank is found by its silence, named, and the job ends as the unbroken one") {
  const Workspace place;
  const Unbroken unbroken(2);
  auto options = launched(
      place, 2,
      {plan_of({"rank=1 step=12 phase=forward kind=stop"}), "distributed_config.hang_timeout_s=1"},
      kTwentyRestarts);
  options.set["PATH"] = place.path();  // no debugger, which would take seconds
  const auto run = finish(options);
  INFO(run.out << run.err);
  CHECK(run.exit == 0);
  CHECK_THAT(run.err, Contains("rank 1 (local rank 1") && Contains("hung") &&
                          Contains("step=12 phase=forward"));
  CHECK(summary_of(place).at("restarts")[0].at("cause") == "hang");
  check_same_end(unbroken, place);
}

// hang_timeout_s is auto: 3 s after steps of milliseconds. No debugger holds up the restart.
TEST_CASE("a stopped rank is found by the automatic rule") {
  const Workspace place;
  auto options =
      launched(place, 2, {plan_of({"rank=1 step=12 phase=forward kind=stop"})}, kTwentyRestarts);
  options.set["PATH"] = place.path();
  place.write("gdb", "#!/bin/sh\n: >debugged\n", true);
  const auto run = finish(options);
  INFO(run.out << run.err);
  CHECK(run.exit == 0);
  CHECK_THAT(run.err, Contains("rank 1 (local rank 1") && Contains("hung"));
  CHECK(summary_of(place).at("restarts")[0].at("cause") == "hang");
  CHECK_FALSE(std::filesystem::exists(place / "debugged"));
}

TEST_CASE("a rank that hangs in its loader is the one that is named, not those that wait for it") {
  const Workspace place;
  auto options = launched(
      place, 2, {plan_of({"rank=1 step=12 kind=hang"}), "distributed_config.hang_timeout_s=1"},
      kTwentyRestarts);
  options.set["PATH"] = place.path();
  const auto run = finish(options);
  INFO(run.out << run.err);
  CHECK(run.exit == 0);
  CHECK_THAT(run.err, Contains("rank 1 (local rank 1") && Contains("step=12 phase=data"));
}

// Evaluations and samples are slow as a whole: 1.6 s a batch, 60 ms a token.
TEST_CASE("work between steps that takes longer than any step is not taken for a hang", "[waits]") {
  const Workspace place;
  const auto run = succeed(launched(
      place, 2,
      {plan_of({"rank=0 step=5 phase=histograms kind=slow value=2600",
                "rank=1 step=5 phase=comparing kind=slow value=2600",
                "rank=0 step=5 phase=staging kind=slow value=2600",
                "rank=0 step=5 phase=evaluation kind=slow value=1600",
                "rank=0 step=5 phase=sampling kind=slow value=60"}),
       "trainer_config.eval_every_steps=5", "trainer_config.sample_every_steps=5",
       "trainer_config.sample_tokens=60", "logging_config.tensorboard=true",
       "logging_config.histogram_every_steps=5", "trainer_config.check_replicas_every_steps=5",
       "trainer_config.max_steps=7", "distributed_config.hang_timeout_s=2"},
      {"--max_restarts=0"}));
  CHECK_THAT(run.err, !Contains("hung"));
  CHECK(lines_of(read_bytes(place / "samples.jsonl")).size() == 1);
}

/// A start may then take 30 s, the minimum.
const Words kShortStart = {"trainer_config.max_steps=3", "distributed_config.hang_timeout_s=1"};

TEST_CASE("a rank that is stopped before its first heartbeat is found, and the group restarted",
          "[waits]") {
  const Workspace place;
  auto options = launched(place, 2, kShortStart, kTwentyRestarts);
  const std::string script = place.write(
      "trainer_that_stops.sh", "[ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && kill -STOP $$\nexec " +
                                   trainer_program() + " \"$@\"\n");
  const auto program = std::find(options.argv.begin(), options.argv.end(), trainer_program());
  REQUIRE(program != options.argv.end());
  *options.argv.insert(program, "/bin/sh");
  *std::find(options.argv.begin(), options.argv.end(), trainer_program()) = script;
  options.set["PATH"] = place.path();
  const auto run = succeed(options);
  CHECK_THAT(run.err, Contains("rank 1 (local rank 1") && Contains("state T (stopped") &&
                          Contains("last heartbeat: none"));
}

TEST_CASE("a rank that hangs before it meets the others is found, not the one that waits for it",
          "[waits]") {
  const Workspace place;
  Words overrides = kShortStart;
  overrides.push_back(plan_of({"rank=1 phase=start kind=hang"}));
  overrides.emplace_back("distributed_config.timeout_s=120");  // far more than the hang's finding
  auto options = launched(place, 2, overrides, kTwentyRestarts);
  options.set["PATH"] = place.path();
  const auto run = succeed(options);
  CHECK_THAT(run.err, Contains("rank 1 (local rank 1") && Contains("last heartbeat: step=0") &&
                          Contains("restart 1 of 20"));
  CHECK(run.err.find("rank 1 (local rank 1") < run.err.find("rank 0 (local rank 0"));
}

// hang_timeout_s is auto.
TEST_CASE("a rank that stands still in its first step is found after a minute", "[long]") {
  const Workspace place;
  auto options = launched(place, 2,
                          {plan_of({"rank=1 step=1 phase=forward kind=hang"}),
                           "trainer_config.max_steps=3", "distributed_config.timeout_s=120"},
                          kTwentyRestarts);
  options.set["PATH"] = place.path();
  const auto run = succeed(options);
  CHECK_THAT(run.err, Contains("rank 1 (local rank 1") && Contains("hung: silent for 6"));
}

}  // namespace
}  // namespace ddp::test
