// Faults on purpose: what a run makes of kills in every phase, full disks, and other numbers of
// ranks.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include "tests/support/catch.h"

#include "tests/e2e/faults.h"
#include "tests/e2e/unbroken.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Catch::StartsWith;
using Json = nlohmann::json;

// Attempt n dies in the n-th place. Two ranks: 17 steps per epoch, a save every 5 steps.
const Words kEveryPhase = {"rank=1 step=3 phase=data kind=kill attempt=0",
                           "rank=0 step=6 phase=forward kind=abort attempt=1",
                           "rank=1 step=8 phase=backward kind=kill attempt=2",
                           "rank=0 step=11 phase=all_reduce kind=kill attempt=3",
                           "rank=1 step=13 phase=optimizer kind=exit value=3 attempt=4",
                           "rank=1 step=17 phase=evaluation kind=kill attempt=5",
                           "rank=0 step=20 phase=staging kind=kill attempt=6",
                           "rank=0 step=25 phase=writing kind=kill attempt=7",
                           "rank=0 step=30 phase=rename kind=kill attempt=8",
                           "rank=0 step=35 phase=published kind=kill attempt=9"};

TEST_CASE(
    "a job that ends in every phase, by a kill, an abort or an exit, ends as the unbroken one") {
  const Workspace place;
  const Unbroken unbroken(2);
  const auto run = succeed(launched(place, 2, {plan_of(kEveryPhase)}, kTwentyRestarts));
  INFO(run.out << run.err);
  CHECK_THAT(run.err, Contains("FAULT INJECTION: kill on rank 0 in step 35, phase published"));
  check_same_end(unbroken, place);
  CHECK(steps_of(log_of(place)) == steps_of(unbroken.out));
  // Each restart is in the account, with its cause.
  const Json summary = summary_of(place);
  REQUIRE(summary.at("restarts").size() == 10);
  CHECK(summary.at("restarts")[0].at("cause") == "SIGKILL");
  CHECK(summary.at("useful_steps") == 40);
  CHECK(summary.at("redone_steps") > 0);
}

// What the ranks do about a bad step are collectives: a rank that entered them alone would wait in
// one, and the other one in another.
TEST_CASE("a run that is continued by hand counts ddp-run's restarts and the time of both jobs") {
  const Workspace place;
  succeed(launched(place, 2, {plan_of({"rank=1 step=3 kind=kill"}), "trainer_config.max_steps=5"},
                   kTwentyRestarts));
  const double first = summary_of(place).at("wall_seconds");
  const auto run = succeed(launched(place, 2, {"trainer_config.max_steps=9"}));
  const Json earlier = summary_of(place).at("earlier_jobs");
  CHECK(earlier.at("jobs") == 1);
  CHECK(earlier.at("seconds") == first);
  CHECK(earlier.at("restarts") == 1);
  CHECK(summary_of(place).at("restarts").empty());
  CHECK_THAT(run.out, Contains(" in 2 jobs, 1 restart; this job:"));
}

void check_lone_nan(const std::string& backend) {
  const Workspace place;
  const Unbroken unbroken(2);
  const Words words = {
      plan_of({"rank=1 step=6 kind=nan_here attempt=0", "rank=0 step=13 kind=nan_here attempt=1"}),
      "distributed_config.backend=" + backend, "trainer_config.bad_step_policy=rollback"};
  const auto run = succeed(launched(place, 2, words, kTwentyRestarts));
  INFO(run.out << run.err);
  const Words errors = errors_of(run.err);
  REQUIRE(errors.size() == 2);
  CHECK_THAT(errors[0], StartsWith("error: step 6: the gradients are NaN or Inf on rank 1 but"));
  CHECK_THAT(errors[1], StartsWith("error: step 13: the gradients are NaN or Inf on rank 0 but"));
  check_same_end(unbroken, place);
}

TEST_CASE("ranks of which one alone finds NaN end in one line, and the job resumes exactly") {
  check_lone_nan("auto");
}

TEST_CASE("ranks that communicate by sockets end in one line when one alone finds NaN", "[long]") {
  check_lone_nan("gloo");
}

TEST_CASE("with copies in memory a kill costs at most one step") {
  const Workspace place;
  const Unbroken unbroken(2);
  const Words faults = {"rank=1 step=18 phase=backward kind=kill attempt=0",
                        "rank=0 step=29 phase=optimizer kind=kill attempt=1"};
  const auto run = succeed(launched(place, 2,
                                    {plan_of(faults), "trainer_config.ram_snapshots=true",
                                     "trainer_config.save_every_steps=1000"},
                                    kTwentyRestarts));
  INFO(run.out << run.err);
  // Each kill may come before the copy of the step before it is whole.
  CHECK_THAT(run.out, Contains(", step 17") || Contains(", step 16"));
  CHECK_THAT(run.out, Contains(", step 28") || Contains(", step 27"));
  check_same_end(unbroken, place);
  CHECK(summary_of(place).at("redone_steps") <= 2);
}

// With a rate of 0 the first evaluation is the best.
TEST_CASE(
    "a kill while the best model is being written does not lose it to a later copy in memory") {
  const auto check = [](int ranks, const std::string& strategy) {
    INFO(strategy);
    const Workspace place;
    const Words faults = {fmt::format("rank={} step=2 phase=writing kind=hang", ranks - 1),
                          "rank=0 step=5 phase=forward kind=kill"};
    const auto run = succeed(
        launched(place, ranks,
                 {plan_of(faults), "trainer_config.ram_snapshots=true",
                  "optimizer_config.learning_rate=0", "trainer_config.load_best_model_at_end=true",
                  "trainer_config.eval_every_steps=2", "trainer_config.save_every_steps=null",
                  "trainer_config.max_steps=8", "distributed_config.strategy=" + strategy},
                 {"--max_restarts=1", "--shutdown-timeout=1"}));
    INFO(run.out << run.err);
    CHECK(Json::parse(read_bytes(place / "snapshot.pt.manifest.json")).at("best") ==
          "snapshot.pt.step-2");
  };
  check(1, "ddp");
  check(2, "zero1");
}

/// Forty steps of 50 ms, and how often the run saved.
int saves_of_two_seconds(const Words& overrides) {
  const Workspace place;
  Words all = {plan_of({"step=1 kind=slow value=50"}), "trainer_config.save_every_steps=null",
               "trainer_config.snapshot_every=auto"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  succeed(alone(place, all));
  return summary_of(place).at("saves").at("saved");
}

TEST_CASE("automatic snapshots keep their least interval, and the last state is saved anyhow") {
  CHECK(saves_of_two_seconds({}) == 1);  // the last
  CHECK(saves_of_two_seconds({"trainer_config.snapshot_min_interval_s=0",
                              "trainer_config.snapshot_overhead=1",
                              "trainer_config.snapshot_disk_share=1"}) > 1);
}

TEST_CASE("a kill at the very start is restarted, and said") {
  const Workspace place;
  const auto run = succeed(
      launched(place, 2, {plan_of({"rank=1 phase=start kind=kill"}), "trainer_config.max_steps=3"},
               kTwentyRestarts));
  CHECK_THAT(run.err, Contains("FAULT INJECTION: kill on rank 1 in step 0, phase start") &&
                          Contains("restart 1 of 20"));
}

TEST_CASE("four ranks, then two, then three, then four: the same samples, the same losses") {
  const Workspace unbroken, place;
  const auto whole = losses_by_step(succeed(launched(unbroken, 4)).out);
  std::string output;
  for (const auto& [ranks, steps] : {std::pair{4, 6}, {2, 13}, {3, 21}, {4, 40}}) {
    // A restart on the way keeps the global batch, too.
    const auto run = succeed(launched(place, ranks,
                                      {"trainer_config.max_steps=" + std::to_string(steps),
                                       plan_of({"rank=1 step=12 kind=kill"})},
                                      kTwentyRestarts));
    if (ranks < 4) CHECK_THAT(run.out, Contains("the global batch stays 16 samples"));
    output += run.out;
  }
  const auto parts = losses_by_step(output);
  REQUIRE(parts.size() == whole.size());
  for (const auto& [step, loss] : whole) {
    INFO("step " << step);
    CHECK(std::fabs(parts.at(step) - loss) <= 1e-5 + 1e-6);  // and six digits are printed
  }
  for (const char* key : {"epoch", "position", "micro_batches_per_step"})
    CHECK(inspect(place, place.snapshot()).at(key) ==
          inspect(unbroken, unbroken.snapshot()).at(key));
}

TEST_CASE("an account that cannot be written does not cost the run") {
  const Workspace place;
  std::filesystem::create_directory(place / "run_summary.json");
  const auto run = succeed(alone(place));
  CHECK_THAT(run.err, Contains("no account of this run: ") && Contains("run_summary.json"));
}

/// The options' command in a mount namespace of its own, in which `folder` is a tmpfs of `size`.
ChildOptions with_small_disk(ChildOptions options, const std::string& folder, const char* size) {
  Words argv = {"unshare",
                "--user",
                "--map-root-user",
                "--mount",
                "sh",
                "-c",
                "mount -t tmpfs -o size=" + std::string(size) + " none '" + folder +
                    "' && \"$@\"; code=$?; cp '" + folder + "'/* '" + options.folder +
                    "' 2>/dev/null; exit $code",
                "sh"};
  argv.insert(argv.end(), options.argv.begin(), options.argv.end());
  options.argv = std::move(argv);
  return options;
}

bool can_mount(const Workspace& place) {
  ChildOptions mount = alone(place);
  mount.argv = {"unshare", "--user", "--map-root-user", "--mount", "mount", "-t",
                "tmpfs",   "none",   place.path()};
  return finish(mount).exit == 0;
}

TEST_CASE(
    "on a disk that holds one snapshot less than wanted the oldest goes, and the run goes on") {
  const Workspace place;
  if (!can_mount(place)) return say_skipped("no user namespaces here");
  const Unbroken unbroken(0);
  std::filesystem::create_directory(place / "disk");
  const auto options = alone(place, {"trainer_config.snapshot_path=disk/snapshot.pt",
                                     "trainer_config.save_total_limit=3"});
  const auto run = finish(with_small_disk(options, place / "disk", "1000k"));
  INFO(run.out << run.err);
  CHECK(run.exit == 0);
  CHECK_THAT(run.err, Contains("the disk is full: deleting the snapshot of step"));
  CHECK(differences(unbroken.snapshot(), place.snapshot()) == Words{});
}

TEST_CASE("on a disk that is full the run goes on, keeps the last good snapshot, and says so") {
  const Workspace place;
  if (!can_mount(place)) return say_skipped("no user namespaces here");
  std::filesystem::create_directory(place / "disk");
  const auto options = alone(place, {"trainer_config.snapshot_path=disk/snapshot.pt"});
  const auto run = finish(with_small_disk(options, place / "disk", "500k"));
  INFO(run.out << run.err);
  CHECK(run.exit == 1);
  CHECK_THAT(run.err, Contains("cannot save the snapshot of step 10") && Contains("No space left"));
  CHECK_THAT(run.out, Contains("Step 40 | Train"));
  CHECK_THAT(errors_of(run.err).front(), Contains("(step 40)") && Contains("free space"));
  CHECK(is_whole(place.snapshot()));
}

TEST_CASE("a rank whose state drifts away is found, named, and mended by a restart") {
  const Words twelve = {"trainer_config.max_steps=12"};
  const Workspace unbroken, failing, restarted;
  succeed(launched(unbroken, 2, twelve));
  Words drifting = twelve;
  drifting.emplace_back("trainer_config.check_replicas_every_steps=2");
  drifting.push_back(plan_of({"rank=1 step=7 kind=drift"}));
  const auto failed = finish(launched(failing, 2, drifting));
  CHECK(failed.exit == 1);
  CHECK_THAT(failed.err,
             Contains("step 8: the replicas differ: model.lm_head.weight of rank 1 is not"));
  // The snapshot of step 5 was equal on both ranks; the second attempt has no fault.
  succeed(launched(restarted, 2, drifting, {"--max_restarts=1"}));
  CHECK(differences(unbroken.snapshot(), restarted.snapshot()) == Words{});
}

}  // namespace
}  // namespace ddp::test
