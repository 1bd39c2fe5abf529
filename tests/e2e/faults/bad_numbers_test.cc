// NaN, Inf and spikes: skipped updates, rollbacks, and when a run gives up.
#include <filesystem>

#include "tests/support/catch.h"

#include "tests/e2e/faults.h"

namespace ddp::test {
namespace {

using Catch::Contains;

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

// The step is left out the second time, which equals skipping its update.
TEST_CASE("rollback goes back to the snapshot and leaves the step out, also after a kill") {
  const Workspace skipped, rolled_back, killed;
  const Words faults = {"rank=0 step=13 kind=nan"};
  const std::string evaluations = "trainer_config.eval_every_steps=5";
  succeed(launched(skipped, 2, {plan_of(faults), evaluations}));
  const Words rollback = {"trainer_config.bad_step_policy=rollback", evaluations,
                          "trainer_config.sample_every_steps=10"};
  const auto run = succeed(launched(rolled_back, 2, joined(rollback, {plan_of(faults)})));
  CHECK_THAT(run.err, Contains("Back to the snapshot of step 10; step 13 will be left out"));
  CHECK_THAT(run.out, Contains("Step 13: left out, as decided before"));
  CHECK(evaluations_of(run.out).size() == 10);  // none of step 10 again
  CHECK(lines_of(read_bytes(rolled_back / "samples.jsonl")).size() == 4);
  const Words but_for_its_history = {"step_guard"};
  CHECK(differences(skipped.snapshot(), rolled_back.snapshot()) == but_for_its_history);
  succeed(launched(killed, 2, joined(rollback, {plan_of({faults[0], "rank=1 step=22 kind=kill"})}),
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
                          Contains("10 rollbacks in a row made no progress past step 12") &&
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

// The second attempt begins with the copy of step 9 and rolls back past it.
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
  CHECK_THAT(run.out, Contains("at epoch 1, step 9"));
  CHECK_THAT(run.err, Contains("Back to the snapshot of step 5; step 10 will be left out"));
  CHECK_THAT(run.out, Contains("at epoch 1, step 5\n") && Contains("Step 10: left out"));
}

TEST_CASE("a rollback into the epoch before does not end an epoch") {
  const Workspace place;
  const auto run = succeed(launched(
      place, 2, {plan_of({"rank=0 step=19 kind=nan"}), "trainer_config.bad_step_policy=rollback"}));
  INFO(run.out << run.err);
  CHECK_THAT(run.err, Contains("Back to the snapshot of step 15; step 19 will be left out"));
  CHECK_THAT(run.out, Contains("Step 17 | Eval") && !Contains("Step 15 | Eval"));
}

// The only update is made of good gradients, and leaves weights that no product of is finite.
TEST_CASE("a run whose last evaluation is not finite fails in any precision") {
  const Words ruin = {"trainer_config.max_steps=1", "optimizer_config.learning_rate=1e30"};
  const Workspace half, single, brain;
  const auto fails = finish(
      alone(half, joined(ruin, {"trainer_config.use_amp=true", "trainer_config.amp_on_cpu=true"})));
  INFO(fails.out << fails.err);
  CHECK(fails.exit == 1);
  REQUIRE(errors_of(fails.err).size() == 1);
  CHECK_THAT(errors_of(fails.err)[0], Contains("the loss of the last evaluation is nan") &&
                                          Contains("set trainer_config.amp_dtype=bfloat16") &&
                                          Contains("start over"));
  const Words in_brain = {"trainer_config.use_amp=true", "trainer_config.amp_on_cpu=true",
                          "trainer_config.amp_dtype=bfloat16"};
  for (const auto& run :
       {finish(alone(single, ruin)), finish(alone(brain, joined(ruin, in_brain)))}) {
    INFO(run.out << run.err);
    CHECK(run.exit == 1);
    REQUIRE(errors_of(run.err).size() == 1);
    CHECK_THAT(errors_of(run.err)[0],
               Contains("the loss of the last evaluation is nan") && !Contains("amp_dtype"));
  }
}

TEST_CASE("a model whose numbers are not finite fails in eval and generate, in one line") {
  const Workspace place;
  const Words ruin = {"trainer_config.max_steps=1", "optimizer_config.learning_rate=1e30"};
  CHECK(finish(alone(place, joined(ruin, {"data_config.tokenizer=byte"}))).exit == 1);
  const auto fails = [&](const Words& words, const std::string& said) {
    const auto run = finish(trainer(place, words));
    INFO(run.out << run.err);
    CHECK(run.exit == 1);
    REQUIRE(errors_of(run.err).size() == 1);
    CHECK_THAT(errors_of(run.err)[0], Contains(said) && Contains("useless"));
    return run.out;
  };
  CHECK_THAT(fails({"eval", "--snapshot", "snapshot.pt"}, "snapshot.pt: loss is "),
             Contains("accuracy"));
  const std::string odd = place / "odd\xff.pt";  // no UTF-8, as JSON has to be
  std::filesystem::copy_file(place / "snapshot.pt", odd);
  CHECK_THAT(fails({"eval", "--snapshot", odd, "--json"}, "loss is "), Contains("\"loss\": null"));
  for (const std::string choice : {"--greedy", "--temperature=1"})
    fails({"generate", "--snapshot", "snapshot.pt", "--prompt", "a", choice}, "logits");
  place.write("suite.jsonl", R"({"activity_label": "a", "ctx_a": "a", "ctx_b": "a", )"
                             R"("endings": ["a", "a e"], "label": 1})");
  fails({"eval", "--snapshot", "snapshot.pt", "--suite", "suite.jsonl"}, "a log-likelihood is nan");
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

TEST_CASE("spikes are judged alike in a resumed run") {
  const Workspace unbroken, place;
  const Words spiky = {"trainer_config.spike_factor=1.2"};
  const auto whole = succeed(launched(unbroken, 2, spiky));
  INFO(whole.err);
  CHECK_THAT(whole.err, Contains("spike: loss"));
  succeed(launched(place, 2, {spiky[0], plan_of({"rank=0 step=27 kind=kill"})}, kTwentyRestarts));
  CHECK(differences(unbroken.snapshot(), place.snapshot()) == Words{});
}

}  // namespace
}  // namespace ddp::test
