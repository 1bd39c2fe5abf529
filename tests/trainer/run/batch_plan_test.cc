#include "trainer/run/batch_plan.h"

#include "tests/support/catch.h"

#include "tests/trainer/snapshot/snapshot_files.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

/// A snapshot of a run of `world` ranks with this configuration.
SnapshotMeta saved_by(const TrainerConfig& trainer, int64_t micro_batches, int64_t world) {
  Config config;
  config.trainer = trainer;
  auto meta = test::sample_meta(1);
  meta.config_json = config_to_json(config);
  meta.micro_batches_per_step = micro_batches;
  meta.world_size = world;
  return meta;
}

}  // namespace

TEST_CASE("without more each rank makes grad_accumulation_steps micro-batches") {
  TrainerConfig config;
  config.grad_accumulation_steps = 3;
  CHECK(plan_batches(config, 4, {}).micro_batches == 12);
  CHECK(plan_batches(config, 1, {}).micro_batches == 3);
}

TEST_CASE("every micro-batch belongs to one rank") {
  for (int64_t micro_batches = 1; micro_batches < 20; ++micro_batches) {
    const BatchPlan plan{micro_batches, ""};
    for (int world = 1; world <= micro_batches; ++world) {
      int64_t sum = 0;
      for (int rank = 0; rank < world; ++rank) {
        CHECK(plan.of_rank(rank, world) >= 1);
        sum += plan.of_rank(rank, world);
      }
      CHECK(sum == micro_batches);
    }
  }
}

TEST_CASE("another number of ranks keeps the global batch of the snapshot") {
  TrainerConfig config;
  const auto of_four = saved_by(config, 4, 4);
  for (const int world : {1, 2, 3, 4}) {
    const auto plan = plan_batches(config, world, of_four);
    CHECK(plan.micro_batches == 4);
    CHECK(plan.note.empty() == (world == 4));
  }
}

TEST_CASE("the number of ranks that a run has shrunk to keeps its global batch at a restart") {
  const auto plan = plan_batches(TrainerConfig(), 2, saved_by(TrainerConfig(), 4, 2));
  CHECK(plan.micro_batches == 4);
  CHECK_THAT(plan.note, Catch::Contains("2 ranks: the global batch stays 864 samples"));
}

TEST_CASE("a global batch that is not asked for any more is forgotten") {
  TrainerConfig config;
  config.global_batch_size = 4 * config.batch_size;
  CHECK(plan_batches(TrainerConfig(), 2, saved_by(config, 4, 2)).micro_batches == 2);
}

TEST_CASE("more ranks than micro-batches make the global batch grow, and that is said") {
  TrainerConfig config;
  const auto plan = plan_batches(config, 4, saved_by(config, 2, 2));
  CHECK(plan.micro_batches == 4);
  CHECK_THAT(plan.note, Catch::Contains("grows from 432 to 864"));
}

TEST_CASE("of a model that is divided between ranks its copies are counted") {
  Config before;
  before.distributed.pipeline = before.distributed.tensor = 2;
  auto of_two_copies = saved_by(TrainerConfig(), 2, 8);
  of_two_copies.config_json = config_to_json(before);
  CHECK_THAT(plan_batches(TrainerConfig(), 1, of_two_copies, /*divided=*/true).note,
             Catch::StartsWith("1 copy of the model instead of 2: the global batch stays 432 "));
  CHECK_THAT(plan_batches(TrainerConfig(), 3, of_two_copies, /*divided=*/true).note,
             Catch::StartsWith("3 copies of the model instead of 2: the global batch grows"));
  CHECK_THAT(plan_batches(TrainerConfig(), 1, of_two_copies).note,
             Catch::StartsWith("1 rank instead of 2: the global batch stays 432 "));
  TrainerConfig config;
  config.batch_size = 4;
  config.global_batch_size = 4;
  CHECK_THROWS_WITH(plan_batches(config, 2, {}, /*divided=*/true),
                    Catch::Contains("too few for 2 copies of the model; use a batch_size of 2"));
}

TEST_CASE("a batch that the user has edited counts, whatever the snapshot had") {
  TrainerConfig before;
  TrainerConfig now = before;
  now.grad_accumulation_steps = 2;
  CHECK(plan_batches(now, 2, saved_by(before, 4, 4)).micro_batches == 4);
  now.grad_accumulation_steps = 5;
  CHECK(plan_batches(now, 2, saved_by(before, 4, 4)).micro_batches == 10);
}

TEST_CASE("global_batch_size decides for any number of ranks, or says what would do") {
  TrainerConfig config;
  config.batch_size = 4;
  config.global_batch_size = 24;
  for (const int world : {1, 2, 3, 4, 6}) CHECK(plan_batches(config, world, {}).micro_batches == 6);
  CHECK_THROWS_WITH(plan_batches(config, 8, {}), Catch::Contains("batch_size of 3 or less"));
}

}  // namespace ddp::train
