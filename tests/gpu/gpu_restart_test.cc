// The guarantees of docs/fault-tolerance.md on GPUs: kills in every phase, stopped ranks, signals,
// damaged snapshots, another number of GPUs.
#include <signal.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "tests/support/catch.h"

#include "tests/e2e/faults.h"
#include "tests/gpu/gpu_job.h"

namespace ddp::test {
namespace {

using Catch::Contains;

const Words kTwentyFourSteps = {"trainer_config.max_steps=24", "trainer_config.save_every_steps=3"};

ChildOptions on_two_gpus(const Workspace& place, const Words& words) {
  return on_gpus(place, 2, launched(place, 2, words, kTwentyRestarts));
}

/// Requires that the job ends with the bytes of one without `faults`. Returns its output.
Finished check_faults_cost_nothing(const Workspace& place, const Words& words,
                                   const Words& faults) {
  const Workspace unbroken;
  succeed(on_two_gpus(unbroken, words));
  auto run = succeed(on_two_gpus(place, joined(words, {plan_of(faults)})));
  INFO(run.out << run.err);
  CHECK(differences(unbroken.snapshot(), place.snapshot()) == Words{});
  return run;
}

nlohmann::json restarts_of(const Workspace& place) {
  return nlohmann::json::parse(read_bytes(place / "run_summary.json")).at("restarts");
}

}  // namespace

// Attempt n dies in the n-th place; an epoch has 17 steps.
TEST_CASE("a job on two GPUs that is killed again and again ends as the unbroken one") {
  if (!gpus_are_faked()) return;
  const Words faults = {"rank=0 step=11 phase=all_reduce kind=kill attempt=0",
                        "rank=1 step=14 phase=optimizer kind=kill attempt=1",
                        "rank=0 step=18 phase=writing kind=kill attempt=2"};
  const Workspace place;
  check_faults_cost_nothing(place, kTwentyFourSteps, faults);
  CHECK(restarts_of(place).size() == faults.size());
}

TEST_CASE("a job on two GPUs that is killed in every phase ends as the unbroken one", "[long]") {
  if (!gpus_are_faked()) return;
  const Words faults = {"rank=1 step=2 phase=data kind=kill attempt=0",
                        "rank=0 step=5 phase=forward kind=kill attempt=1",
                        "rank=1 step=8 phase=optimizer kind=kill attempt=2",
                        "rank=0 step=11 phase=all_reduce kind=kill attempt=3",
                        "rank=1 step=17 phase=evaluation kind=kill attempt=4",
                        "rank=0 step=18 phase=staging kind=kill attempt=5",
                        "rank=0 step=21 phase=writing kind=kill attempt=6",
                        "rank=0 step=21 phase=rename kind=kill attempt=7",
                        "rank=0 step=21 phase=published kind=kill attempt=8"};
  const Workspace place;
  check_faults_cost_nothing(place, kTwentyFourSteps, faults);
  CHECK(restarts_of(place).size() == faults.size());
}

// Every rank writes a part of each snapshot.
TEST_CASE("with zero2 on two GPUs a stopped rank, a damaged snapshot and kills cost no bit",
          "[long]") {
  if (!gpus_are_faked()) return;
  const Workspace place;
  const auto run = check_faults_cost_nothing(
      place,
      joined(kTwentyFourSteps,
             {"distributed_config.strategy=zero2", "distributed_config.hang_timeout_s=2"}),
      {"rank=1 step=8 phase=forward kind=stop attempt=0", "rank=0 step=12 kind=corrupt attempt=1",
       "rank=1 step=15 phase=writing kind=kill attempt=1",  // the one before is published
       "rank=1 step=18 phase=writing kind=kill attempt=2"});
  CHECK_THAT(run.err, Contains("rank 1 (local rank 1") && Contains("hung"));
  CHECK_THAT(run.out + run.err, Contains("damaged"));
  const auto restarts = restarts_of(place);
  REQUIRE(restarts.size() == 3);
  CHECK(restarts[0].at("cause") == "hang");
  CHECK(restarts[1].at("cause") == "SIGKILL");
}

TEST_CASE("with copies in memory a kill on two GPUs costs a few steps and no bit") {
  if (!gpus_are_faked()) return;
  const Workspace place;
  check_faults_cost_nothing(place,
                            {"trainer_config.max_steps=24", "trainer_config.save_every_steps=1000",
                             "trainer_config.ram_snapshots=true"},
                            {"rank=1 step=12 phase=backward kind=kill attempt=0"});
  const auto summary = nlohmann::json::parse(read_bytes(place / "run_summary.json"));
  CHECK(summary.at("restarts").size() == 1);
  CHECK(summary.at("redone_steps") < 6);
  // The threads that copy, too, keep to their rank's GPU: a context on another takes of its memory.
  for (const auto& ledger : ledgers_of(place))
    CHECK(ledger.at("counters").at("context").at("calls") == 1);
}

TEST_CASE("a signal to a job on two GPUs loses no step") {
  if (!gpus_are_faked()) return;
  const Workspace stopped, unbroken;
  ChildProgram job(on_two_gpus(
      stopped, {"trainer_config.max_steps=100000", "trainer_config.save_every_steps=100000"}));
  job.wait_for("Step 7 | Train", 1, kPatience);
  job.signal(SIGTERM);
  job.wait_all_gone(kPatience);
  INFO(job.out() << job.err());
  CHECK(job.wait_exit(kPatience) == 75);
  CHECK_THAT(job.out(), Contains("Stopped by signal 15 and saved"));
  const int last = order_of_steps(job.out()).back();
  const Words further = {"trainer_config.max_steps=" + std::to_string(last + 3)};
  succeed(on_two_gpus(unbroken, further));
  const auto resumed = succeed(on_two_gpus(stopped, further));
  CHECK(order_of_steps(resumed.out) == std::vector<int>{last + 1, last + 2, last + 3});
  CHECK(differences(unbroken.snapshot(), stopped.snapshot()) == Words{});
}

namespace {

/// One run, whose parts are numbers of GPUs and the steps that they end with, is like one on two.
// Without dropout: what a device draws depends on its number of rows.
void check_like_two_gpus(const std::vector<std::pair<int, int>>& parts_of_run) {
  const int last = parts_of_run.back().second;
  const Words words = {"gpt_config.embd_pdrop=0", "gpt_config.resid_pdrop=0",
                       "gpt_config.attn_pdrop=0"};
  const auto until = [&](int steps) {
    return joined(words, {"trainer_config.max_steps=" + std::to_string(steps)});
  };
  const Workspace unbroken, place;
  const auto whole = losses_by_step(succeed(on_two_gpus(unbroken, until(last))).out);
  std::string output;
  for (const auto& [gpus, steps] : parts_of_run)
    output += succeed(on_gpus(place, gpus, launched(place, gpus, until(steps)))).out;
  const auto parts = losses_by_step(output);
  REQUIRE(whole.size() == static_cast<std::size_t>(last));
  REQUIRE(parts.size() == whole.size());
  for (const auto& [step, loss] : whole) {
    INFO("step " << step);
    CHECK(std::abs(parts.at(step) - loss) <= 1e-5 + 1e-6);  // and six digits are printed
  }
  CHECK(inspect(place, place.snapshot()).at("position") ==
        inspect(unbroken, unbroken.snapshot()).at("position"));
}

}  // namespace

TEST_CASE("two GPUs, then one see the same samples and have the same losses") {
  if (!gpus_are_faked()) return;
  check_like_two_gpus({{2, 3}, {1, 6}});
}

TEST_CASE("two GPUs, then one, then two see the same samples and have the same losses", "[long]") {
  if (!gpus_are_faked()) return;
  check_like_two_gpus({{2, 3}, {1, 6}, {2, 9}});
}

}  // namespace ddp::test
