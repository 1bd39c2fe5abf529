#include "trainer/run/run_end.h"

#include "tests/support/catch.h"

namespace ddp::train {
namespace {

TrainerConfig limited(int64_t epochs, std::optional<int64_t> steps, const char* path) {
  TrainerConfig config;
  config.max_epochs = epochs;
  config.max_steps = steps;
  config.snapshot_path = path;
  return config;
}

}  // namespace

TEST_CASE("a run is complete at its last epoch or its last step, whichever comes first") {
  const auto config = limited(8, 100, "s.pt");
  CHECK_FALSE(run_is_complete(config, 99, 7));
  CHECK(run_is_complete(config, 100, 7));
  CHECK(run_is_complete(config, 50, 8));
}

TEST_CASE(
    "the steps of a run are those made and those of the remaining samples, after any change") {
  const auto config = limited(3, {}, "s.pt");
  const DistributedSampler sampler(103, 5, 4, 1);
  const DistributedSampler twice(103, 10, 4, 1);
  DataCursor cursor;
  for (int64_t step = 0; step < 15; ++step) {
    CHECK(steps_of_run(config, sampler, step, cursor) == 15);
    cursor = sampler.next(cursor);
  }
  CHECK(steps_of_run(config, sampler, 15, cursor) == 15);
  // After 7 of 15 steps, 40 samples into the second epoch, batches of 20 become batches of 40.
  cursor = {1, 40};
  for (int64_t step = 7; step < 10; ++step) {
    CHECK(steps_of_run(config, twice, step, cursor) == 7 + 1 + 2);
    cursor = twice.next(cursor);
  }
  CHECK(run_is_complete(config, 10, cursor.epoch));
  CHECK(steps_of_run(limited(3, 9, "s.pt"), twice, 7, {1, 40}) == 9);
  CHECK(steps_of_run(limited(1000000000, 9, "s.pt"), twice, 7, {1, 40}) == 9);
}

TEST_CASE("a complete run that is started again names the words that make it go on") {
  CHECK(
      nothing_to_train_text(limited(8, {}, "outputs/quickstart/snapshot.pt"), 1320, 8) ==
      "Nothing to train: outputs/quickstart/snapshot.pt is at step 1320, epoch 8, the end set by "
      "trainer_config.max_epochs=8. To continue, add trainer_config.max_epochs=16 to the command; "
      "to start over, add trainer_config.snapshot_path=outputs/quickstart/snapshot-new.pt");
  CHECK_THAT(nothing_to_train_text(limited(100, 40, "a.b/snapshot"), 60, 2),
             Catch::Contains("add trainer_config.max_steps=100 to") &&
                 Catch::EndsWith("snapshot_path=a.b/snapshot-new"));
  CHECK_THAT(
      nothing_to_train_text(limited(2, 40, ".pt"), 40, 2),
      Catch::Contains("max_epochs=4 trainer_config.max_steps=80") && Catch::EndsWith("=.pt-new"));
}

TEST_CASE("printed commands are quoted for a shell where needed") {
  CHECK(shell_quoted("outputs/run-1/snapshot.pt.step-5") == "outputs/run-1/snapshot.pt.step-5");
  CHECK(shell_quoted("it's $HOME/a b.pt") == R"('it'\''s $HOME/a b.pt')");
  CHECK_THAT(nothing_to_train_text(limited(2, {}, "my run/s.pt"), 40, 2),
             Catch::EndsWith(R"(add 'trainer_config.snapshot_path="my run/s-new.pt"')"));
}

}  // namespace ddp::train
