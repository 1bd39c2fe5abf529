// Faults on purpose: what a run makes of kills in every phase, hangs, bad numbers, full disks, and
// other numbers of ranks.
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"
#include "tests/e2e/unbroken.h"
#include "tests/e2e/workers.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Json = nlohmann::json;

// Without delays, however fast the machine: faults come in quick succession.
const Words kTwentyRestarts = {"--max_restarts=20", "--healthy-after=0.01"};

std::string plan_of(const Words& faults) {
  Json list = faults;
  return "trainer_config.fault_plan=" + list.dump();
}

Json summary_of(const Workspace& place) {
  return Json::parse(read_bytes(place / "run_summary.json"));
}

void check_same_end(const Workspace& unbroken, const Workspace& place) {
  CHECK(differences(unbroken.snapshot(), place.snapshot()) == Words{});
  CHECK(content_sha256(unbroken) == content_sha256(place));
}

// Attempt n dies in the n-th place. Two ranks: 17 steps per epoch, a save every 5 steps.
const Words kEveryPhase = {"rank=1 step=3 phase=data kind=kill attempt=0",
                           "rank=0 step=6 phase=forward kind=kill attempt=1",
                           "rank=1 step=8 phase=backward kind=kill attempt=2",
                           "rank=0 step=11 phase=all_reduce kind=kill attempt=3",
                           "rank=1 step=13 phase=optimizer kind=kill attempt=4",
                           "rank=1 step=17 phase=evaluation kind=kill attempt=5",
                           "rank=0 step=20 phase=staging kind=kill attempt=6",
                           "rank=0 step=25 phase=writing kind=kill attempt=7",
                           "rank=0 step=30 phase=rename kind=kill attempt=8",
                           "rank=0 step=35 phase=published kind=kill attempt=9"};

TEST_CASE("a job that is killed in every phase, once in each, ends as the unbroken one") {
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

TEST_CASE("a job in which ranks abort and exit by themselves ends as the unbroken one") {
  const Workspace place;
  const Unbroken unbroken(2);
  const Words faults = {"rank=0 step=6 phase=forward kind=abort attempt=0",
                        "rank=1 step=13 phase=optimizer kind=exit value=3 attempt=1"};
  const auto run = succeed(launched(place, 2, {plan_of(faults)}, kTwentyRestarts));
  INFO(run.out << run.err);
  check_same_end(unbroken, place);
  CHECK(summary_of(place).at("restarts").size() == 2);
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
  const std::string debugger = place.write("gdb", "#!/bin/sh\n: >debugged\n");
  std::filesystem::permissions(debugger, std::filesystem::perms::owner_all);
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

TEST_CASE("work between steps that takes longer than any step is not taken for a hang") {
  const Workspace place;
  const auto run =
      succeed(launched(place, 2,
                       {plan_of({"rank=0 step=5 phase=histograms kind=slow value=3500",
                                 "rank=1 step=5 phase=comparing kind=slow value=3500",
                                 "rank=0 step=5 phase=staging kind=slow value=3500"}),
                        "logging_config.tensorboard=true", "logging_config.histogram_every_steps=5",
                        "trainer_config.check_replicas_every_steps=5", "trainer_config.max_steps=7",
                        "distributed_config.hang_timeout_s=2"},
                       kTwentyRestarts));
  CHECK_THAT(run.err, !Contains("hung"));
}

/// Where a start is promised 30 s, the least there is.
const Words kShortStart = {"trainer_config.max_steps=3", "distributed_config.hang_timeout_s=1"};

TEST_CASE("a rank that is stopped before its first heartbeat is found, and the group restarted") {
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

TEST_CASE("a rank that hangs before it meets the others is found, not the one that waits for it") {
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

TEST_CASE("NaN on one rank skips the update on all, the same for any number of ranks") {
  const Workspace two, one;
  const std::string nan = plan_of({"rank=1 step=7 kind=nan"});
  const auto run = succeed(launched(two, 2, {nan}));
  CHECK_THAT(run.err, Contains("Step 7: NaN or Inf: loss nan, grad norm nan; epoch 1, samples ") &&
                          Contains("update skipped, 1 so far"));
  succeed(alone(one,
                {plan_of({"rank=0 step=7 kind=nan"}), "trainer_config.grad_accumulation_steps=2"}));
  CHECK(differences(two.snapshot(), one.snapshot()) == Words{});
  CHECK(inspect(two, two.snapshot()).at("optimizer_step") == 39.0);
}

// The step is left out the second time, which is what skipping its update comes to.
TEST_CASE("rollback goes back to the snapshot and leaves the step out, also after a kill") {
  const Workspace skipped, rolled_back, killed;
  const Words faults = {"rank=0 step=13 kind=nan"};
  succeed(launched(skipped, 2, {plan_of(faults)}));
  const std::string rollback = "trainer_config.bad_step_policy=rollback";
  const auto run = succeed(launched(rolled_back, 2, {plan_of(faults), rollback}));
  CHECK_THAT(run.err, Contains("Back to the snapshot of step 10; step 13 will be left out"));
  CHECK_THAT(run.out, Contains("Step 13: left out, as decided before"));
  const Words but_for_its_history = {"step_guard"};
  CHECK(differences(skipped.snapshot(), rolled_back.snapshot()) == but_for_its_history);
  succeed(launched(killed, 2, {plan_of({faults[0], "rank=1 step=22 kind=kill"}), rollback},
                   kTwentyRestarts));
  CHECK(differences(rolled_back.snapshot(), killed.snapshot()) == Words{});
}

TEST_CASE("rollbacks that lead nowhere end the run, with the reason and a good snapshot") {
  const Workspace place;
  Words faults;
  for (int step = 13; step <= 30; ++step)
    faults.push_back("rank=1 step=" + std::to_string(step) + " kind=nan");
  const auto run = finish(launched(
      place, 2, {plan_of(faults), "trainer_config.bad_step_policy=rollback"}, kTwentyRestarts));
  INFO(run.out << run.err);
  CHECK(run.exit == 76);
  CHECK_THAT(run.err, Contains("Step 23: NaN or Inf") &&
                          Contains("10 rollbacks in a row have not led beyond step 12") &&
                          Contains("lower optimizer_config.learning_rate") &&
                          !Contains("restart 1 of 20"));
  CHECK(is_whole(place.snapshot()));
}

TEST_CASE("updates that are skipped for ever end the run, with the reason and a good snapshot") {
  const Workspace place;
  Words faults;
  for (int step = 13; step <= 40; ++step)
    faults.push_back("step=" + std::to_string(step) + " kind=nan");
  const auto run = finish(alone(place, {plan_of(faults), "trainer_config.bad_step_policy=skip"}));
  INFO(run.out << run.err);
  CHECK(run.exit == 76);
  CHECK_THAT(run.err, Contains("Step 32: NaN or Inf") &&
                          Contains("20 updates in a row were skipped: training diverges"));
  CHECK(is_whole(place.snapshot()));
}

// The second attempt begins with the copy of step 9 and goes back behind it.
TEST_CASE("after a rollback a copy in memory of a later step is not gone on from") {
  const Workspace place;
  const Words faults = {"rank=1 step=10 phase=backward kind=kill attempt=0",
                        "rank=1 step=10 kind=nan attempt=1",
                        "rank=1 step=6 phase=forward kind=kill attempt=1"};
  const auto run =
      succeed(launched(place, 2,
                       {plan_of(faults), "trainer_config.ram_snapshots=true",
                        "trainer_config.max_steps=12", "trainer_config.bad_step_policy=rollback"},
                       kTwentyRestarts));
  INFO(run.out << run.err);
  CHECK_THAT(run.out, Contains("at epoch 0, step 9"));
  CHECK_THAT(run.err, Contains("Back to the snapshot of step 5; step 10 will be left out"));
  CHECK_THAT(run.out, Contains("at epoch 0, step 5\n") && Contains("Step 10: left out"));
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
                              "trainer_config.snapshot_disk_share=1"}) > 2);
}

TEST_CASE("a rollback into the epoch before does not end an epoch") {
  const Workspace place;
  const auto run = succeed(launched(
      place, 2, {plan_of({"rank=0 step=19 kind=nan"}), "trainer_config.bad_step_policy=rollback"}));
  INFO(run.out << run.err);
  CHECK_THAT(run.err, Contains("Back to the snapshot of step 15; step 19 will be left out"));
  CHECK_THAT(run.out, Contains("Step 17 | Eval") && !Contains("Step 15 | Eval"));
}

TEST_CASE("with bad_step_policy=stop the run ends with one line and a good snapshot") {
  const Workspace place;
  const auto run =
      finish(alone(place, {plan_of({"step=13 kind=nan"}), "trainer_config.bad_step_policy=stop"}));
  CHECK(run.exit == 76);
  REQUIRE(errors_of(run.err).size() == 1);
  CHECK_THAT(errors_of(run.err)[0], Contains("Step 13: NaN or Inf") && Contains("snapshot.pt"));
  CHECK(inspect(place, place.snapshot()).at("step") == 10);
}

TEST_CASE("with bad_step_policy=stop the group is not restarted") {
  const Workspace place;
  const auto run = finish(launched(
      place, 2, {plan_of({"rank=1 step=13 kind=nan"}), "trainer_config.bad_step_policy=stop"},
      {"--max_restarts=3"}));
  INFO(run.out << run.err);
  CHECK(run.exit == 76);
  CHECK_THAT(run.err, Contains("would fail again") && !Contains("restart 1 of 3"));
}

TEST_CASE("a kill at the very start is restarted, and said") {
  const Workspace place;
  const auto run = succeed(
      launched(place, 2, {plan_of({"rank=1 phase=start kind=kill"}), "trainer_config.max_steps=3"},
               kTwentyRestarts));
  CHECK_THAT(run.err, Contains("FAULT INJECTION: kill on rank 1 in step 0, phase start") &&
                          Contains("restart 1 of 20"));
}

TEST_CASE("a rank that has evaluated its part waits for the slower one and is not taken for hung") {
  const Workspace place;
  const auto run =
      succeed(launched(place, 2,
                       {plan_of({"rank=0 step=5 phase=evaluation kind=slow value=1600"}),
                        "trainer_config.max_steps=5", "distributed_config.hang_timeout_s=3"},
                       kTwentyRestarts));
  CHECK_THAT(run.err, !Contains("hung"));
}

TEST_CASE("spikes are judged alike in a resumed run") {
  const Workspace unbroken, place;
  const Words spiky = {"trainer_config.spike_factor=1.2"};
  const auto whole = succeed(launched(unbroken, 2, spiky));
  INFO(whole.err);
  CHECK_THAT(whole.err, Contains("spike: loss"));
  succeed(launched(place, 2, {spiky[0], plan_of({"rank=0 step=27 kind=kill"})}, kTwentyRestarts));
  CHECK(differences(unbroken.snapshot(), place.snapshot()) == Words{});
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

TEST_CASE("SIGUSR1 saves and stops, and the job goes on as if nothing had been") {
  const Workspace place;
  const Unbroken unbroken(2);
  {
    ChildProgram job(launched(place, 2, {"trainer_config.save_every_steps=1000"}));
    job.wait_for("Step 7 | Train", 1, kPatience);
    ::kill(worker_pid(place, 1), SIGUSR1);
    job.wait_all_gone(kPatience);
    CHECK(job.wait_exit(kPatience) == 75);
  }
  succeed(launched(place, 2));
  check_same_end(unbroken, place);
}

TEST_CASE("a signal during an evaluation breaks it off, and the resumed run makes it") {
  const Workspace place;
  const Unbroken unbroken(2);
  std::string output;
  {
    ChildProgram job(launched(place, 2,
                              {plan_of({"rank=0 step=17 phase=evaluation kind=slow value=300",
                                        "rank=1 step=17 phase=evaluation kind=slow value=300"})}));
    job.wait_for("Step 17 | Train", 1, kPatience);
    job.signal(SIGTERM);
    job.wait_all_gone(kPatience);
    CHECK(job.wait_exit(kPatience) == 75);
    output = job.out();
  }
  output += succeed(launched(place, 2)).out;
  INFO(output);
  CHECK(evaluations_of(output) == evaluations_of(unbroken.out));
  check_same_end(unbroken, place);
}

TEST_CASE("a signal during the last evaluation loses nothing: the next run makes and keeps it") {
  const Workspace place;
  const Unbroken unbroken(2);
  {
    ChildProgram job(launched(place, 2,
                              {plan_of({"rank=0 step=40 phase=evaluation kind=slow value=300",
                                        "rank=1 step=40 phase=evaluation kind=slow value=300"})}));
    job.wait_for("Step 40 | Train", 1, kPatience);
    job.signal(SIGTERM);
    job.wait_all_gone(kPatience);
    CHECK(job.wait_exit(kPatience) == 75);
  }
  CHECK(evaluations_of(succeed(launched(place, 2)).out).size() == 1);
  check_same_end(unbroken, place);
}

TEST_CASE("an account that cannot be written does not cost the run") {
  const Workspace place;
  std::filesystem::create_directory(place / "run_summary.json");
  const auto run = succeed(alone(place));
  CHECK_THAT(run.err, Contains("no account of this run: ") && Contains("run_summary.json"));
}

TEST_CASE("SIGUSR2 asks how the run is doing") {
  const Workspace place;
  ChildProgram job(launched(place, 2, {"trainer_config.max_steps=100000"}));
  job.wait_for("Step 7 | Train", 1, kPatience);
  job.signal(SIGUSR2);
  job.wait_for("Goodput ", 1, kPatience);
  job.signal(SIGTERM);
  job.wait_all_gone(kPatience);
  CHECK(job.wait_exit(kPatience) == 75);
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
