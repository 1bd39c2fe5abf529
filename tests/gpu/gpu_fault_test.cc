// Kills, bad steps and devices that are too small.
#include <regex>

#include "tests/support/catch.h"

#include "tests/e2e/faults.h"
#include "tests/gpu/gpu_job.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Catch::StartsWith;

const std::string kSteps = "trainer_config.max_steps=18";

}  // namespace

// With dropout: what a device draws is a function of the step, too. A GPU that computes another
// norm than the others must not lead its rank alone into the collectives of a bad step.
TEST_CASE("a job of which a GPU fails and a rank is killed ends as the unbroken one") {
  if (!gpus_are_faked()) return;
  const Workspace unbroken, killed;
  const auto whole = succeed(on_gpus(unbroken, 2, launched(unbroken, 2, {kSteps})));
  const std::string faults = plan_of({"rank=1 step=8 kind=nan_here attempt=0",
                                      "rank=1 step=13 phase=backward kind=kill attempt=1"});
  const auto run =
      succeed(on_gpus(killed, 2, launched(killed, 2, {kSteps, faults}, {"--max_restarts=3"})));
  INFO(run.out << run.err);
  CHECK_THAT(run.err, Contains("error: step 8: the gradients are NaN or Inf on rank 1 but"));
  CHECK_THAT(run.err, Contains("restart 2 of 3"));
  CHECK_THAT(run.out, Contains("Resuming training from snapshot"));
  CHECK(differences(unbroken.snapshot(), killed.snapshot()) == Words{});
  // As each step went last: the failed GPU's next one is under way when its norm is judged.
  CHECK(losses_by_step(log_of(killed)) == losses_by_step(whole.out));
}

// NCCL does not report a lost rank: the launcher's signal does, and each rank gives up what
// its GPU waits for in any group.
TEST_CASE(
    "when a rank of a mesh of GPUs is killed, the others name it, leave, and the run resumes "
    "exactly",
    "[long]") {
  if (!gpus_are_faked()) return;
  const Words model = {"gpt_config.n_layer=4",
                       "gpt_config.n_head=2",
                       "trainer_config.global_batch_size=8",
                       "trainer_config.batch_size=2",
                       "trainer_config.max_steps=6",
                       "trainer_config.save_every_steps=2"};
  struct Mesh {
    Words words;
    std::string fault;
  };
  const std::vector<Mesh> meshes = {
      {{"distributed_config.pipeline=2", "distributed_config.tensor=2"},
       "rank=3 step=4 phase=forward kind=kill attempt=0"},
      {{"distributed_config.tensor=2", "distributed_config.strategy=zero1"},
       "rank=0 step=4 phase=backward kind=kill attempt=0"}};
  for (const auto& [words, fault] : meshes) {
    INFO(fault);
    const Workspace unbroken, killed;
    succeed(on_gpus(unbroken, 4, launched(unbroken, 4, joined(model, words))));
    const auto run =
        succeed(on_gpus(killed, 4,
                        launched(killed, 4, joined(joined(model, words), {plan_of({fault})}),
                                 {"--max_restarts=1"})));
    INFO(run.out << run.err);
    const std::string lost = fault.substr(0, fault.find(' ')).replace(4, 1, " ");
    // The first one that leaves; to others it may be silent by then, too.
    CHECK_THAT(run.err, Contains("while it waited for " + lost + ", which gives no sign of life"));
    for (const std::string rank : {"rank 0", "rank 1", "rank 2", "rank 3"}) {
      if (rank != lost)
        CHECK_THAT(run.err, Contains(rank + ": stopped by signal 15 while it waited for rank "));
    }
    CHECK(differences(unbroken.snapshot(), killed.snapshot()) == Words{});
  }
}

// Each operation of the device begins late, so that whoever does not wait for it reads old bytes.
TEST_CASE("a slow device changes nothing that is trained or saved") {
  if (!gpus_are_faked()) return;
  const Words often = {kSteps, "trainer_config.save_every_steps=3"};
  const Workspace fast, slow;
  succeed(on_gpus(fast, 1, alone(fast, often)));
  auto options = on_gpus(slow, 1, alone(slow, often));
  options.set["FAKECUDA_DELAY_US"] = "100";
  succeed(options);
  CHECK(differences(fast.snapshot(), slow.snapshot()) == Words{});
  CHECK(differences(fast.older(15), slow.older(15)) == Words{});
  CHECK(steps_of(log_of(fast)) == steps_of(log_of(slow)));
}

// The step is left out the second time, which is what skipping its update comes to.
TEST_CASE("on GPUs a rollback returns to the snapshot before the bad step", "[long]") {
  if (!gpus_are_faked()) return;
  const Workspace skipped, rolled_back;
  const std::string nan = plan_of({"rank=0 step=13 kind=nan"});
  const std::string rollback = "trainer_config.bad_step_policy=rollback";
  succeed(on_gpus(skipped, 2, launched(skipped, 2, {kSteps, nan})));
  const auto run =
      succeed(on_gpus(rolled_back, 2, launched(rolled_back, 2, {kSteps, nan, rollback})));
  CHECK_THAT(run.err, Contains("Back to the snapshot of step 10; step 13 will be left out"));
  CHECK_THAT(run.out, Contains("Step 13: left out, as decided before"));
  const Words but_for_its_history = {"step_guard"};
  CHECK(differences(skipped.snapshot(), rolled_back.snapshot()) == but_for_its_history);
}

namespace {

// A GPU's steps are judged one step late, by all ranks together; rank 0 alone takes snapshots.
void check_bad_step_with_snapshot(const Words& ways) {
  const std::string nan = plan_of({"rank=0 step=10 kind=nan"});
  const Workspace without;
  succeed(on_gpus(without, 2,
                  launched(without, 2, {kSteps, nan, "trainer_config.save_every_steps=null"})));
  for (const std::string& snapshots : ways) {
    const Workspace place;
    const auto run = succeed(on_gpus(
        place, 2,
        launched(place, 2, {kSteps, nan, "trainer_config.save_every_steps=null", snapshots})));
    INFO(snapshots << run.out << run.err);
    CHECK_THAT(run.err, Contains("Step 10: NaN or Inf") && Contains("update skipped, 1 so far"));
    CHECK(differences(without.snapshot(), place.snapshot()) == Words{});
  }
}

}  // namespace

TEST_CASE("on GPUs all ranks judge a bad step of which a snapshot is due") {
  if (!gpus_are_faked()) return;
  check_bad_step_with_snapshot({"trainer_config.save_every_steps=5"});
}

TEST_CASE("on GPUs all ranks judge a bad step of which any other snapshot is due", "[long]") {
  if (!gpus_are_faked()) return;
  check_bad_step_with_snapshot(
      {"trainer_config.snapshot_every=5", "trainer_config.ram_snapshots=true"});
}

TEST_CASE("a batch that no GPU holds ends a run with one line that says what to change") {
  if (!gpus_are_faked()) return;
  const Workspace place;
  const Words too_much = {"data_config.block_size=64", "data_config.stride=1",
                          "trainer_config.batch_size=4000"};
  const auto on_small_gpu = [&](const ChildOptions& options) {
    auto limited = on_gpus(place, 1, options);
    limited.set["FAKECUDA_MEMORY_GB"] = "0.6";
    return finish(limited);
  };
  const auto run = on_small_gpu(alone(place, too_much));
  INFO(run.out << run.err);
  CHECK(run.exit == 76);
  REQUIRE(lines_of(run.err).size() == 1);
  CHECK_THAT(run.err,
             StartsWith("error: out of memory on the GPU: ") && Contains(" more were requested"));
  CHECK(order_of_steps(run.out).empty());
  // What the run had taken by then is available to the next one.
  Words estimate = {"estimate", "--config", "config.yaml"};
  estimate.insert(estimate.end(), too_much.begin(), too_much.end());
  const auto before = on_small_gpu(trainer(place, estimate));
  static const std::regex advice(R"(trainer_config\.batch_size=\d+ with)");
  std::smatch said;
  REQUIRE(std::regex_search(before.out, said, advice));
  CHECK_THAT(run.err, Contains(said.str()));
}

}  // namespace ddp::test
