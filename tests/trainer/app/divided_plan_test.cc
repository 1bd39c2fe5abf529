// Plans that divide the model: layers shared by ranks, stages of a pipeline.
#include <limits>
#include <utility>

#include "tests/support/catch.h"
#include "tests/trainer/app/planned_blocks.h"
#include "trainer/metrics/text.h"
#include "trainer/parallel/strategy/pipeline_schedule.h"

namespace ddp::train {
namespace {

using Catch::Contains;
using test::Blocks;
using test::choice;
using test::found;
using test::gpus;
using test::kMillion;
using test::training_of_blocks;

}  // namespace

TEST_CASE("where no number of ranks fits, the leanest of all divisions is named, stages too") {
  auto training = training_of_blocks(Blocks{.layers = 2, .width = 2048, .tokens = 8192}, 1);
  training.refusal = [](const Config& config) -> std::string {
    const DistributedConfig& how = config.distributed;
    const bool in_stages = how.pipeline == 1 || how.strategy <= Strategy::kZero1;
    return how.tensor == 1 && in_stages ? "" : "not so";
  };
  Cluster cluster = gpus(2, 1);
  cluster.memory_bytes = 1200 * kMillion;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int64_t ranks = 4; ranks <= 2048; ranks *= 2) {
    for (const ParallelPlan& plan : parallel_plans(training, gpus(ranks, 1)))
      if (plan.accepted) least = std::min(least, plan.memory_bytes);
  }
  const auto ways = ways_out(training, cluster);
  REQUIRE(ways.size() == 1);
  CHECK_THAT(ways[0], Contains("even with zero1 and distributed_config.pipeline=2") &&
                          Contains("needs " + in_bytes(least) + " at least"));
}

TEST_CASE("ranks that divide the rows hand on their part of them to the next stage") {
  const Blocks blocks{.layers = 4};
  const auto plans = parallel_plans(training_of_blocks(blocks, 1, 8), gpus(4, 80));
  Division division{Strategy::kDdp, 2, 2};
  const ParallelPlan* whole = found(plans, division);
  division.sequence_parallel = true;
  const ParallelPlan* part = found(plans, division);
  REQUIRE((whole && part));
  constexpr double kMicroBatches = 32.0;  // each sends an output forward and a gradient back
  const double message = 4.0 * static_cast<double>(blocks.tokens * blocks.width);
  CHECK(whole->time.sent_bytes - part->time.sent_bytes == Approx(kMicroBatches * 2 * message / 2));
}

TEST_CASE("a layer that no GPU holds is divided by tensor parallelism") {
  // 12 width^2 = 3.2 billion parameters in a block: 26 GB of weights and gradients.
  const auto training = training_of_blocks(Blocks{.layers = 2, .width = 16384, .tokens = 128}, 1);
  const auto plan = choice(training, gpus(8, 24));
  REQUIRE(plan);
  CHECK(plan->division.tensor > 1);
  for (const ParallelPlan& each : parallel_plans(training, gpus(8, 24)))
    if (each.division.tensor == 1) CHECK_FALSE(each.fits);
}

TEST_CASE("on too few ranks for a layer the number of ranks that share it is named") {
  const auto training = training_of_blocks(Blocks{.layers = 2, .width = 16384, .tokens = 128}, 1);
  CHECK_FALSE(choice(training, gpus(1, 24)));
  const auto ways = ways_out(training, gpus(1, 24));
  REQUIRE(ways.size() == 2);
  CHECK_THAT(ways[0], Contains("Only tensor parallelism divides a layer"));
  CHECK_THAT(ways[1], Contains("ranks fit with") && Contains("distributed_config.tensor="));
}

TEST_CASE("every division of the ranks is a plan with the same global batch") {
  const auto training = training_of_blocks(Blocks{}, 4, 2);
  const auto plans = parallel_plans(training, gpus(8, 80));
  for (const auto& [tensor, pipeline] : {std::pair{1, 8}, {2, 4}, {4, 2}, {8, 1}, {2, 1}, {1, 2}}) {
    const Division division{Strategy::kDdp, tensor, pipeline};
    const ParallelPlan* plan = found(plans, division);
    REQUIRE(plan);
    CHECK(plan->data * tensor * pipeline == 8);
    const std::string accumulation =
        "trainer_config.grad_accumulation_steps=" + std::to_string(2 * tensor * pipeline);
    CHECK(std::count(plan->changes.begin(), plan->changes.end(), accumulation) == 1);
  }
}

// Gradients of several chunks are complete after the last pass only.
TEST_CASE("a pipeline's last backward pass hides the exchange of gradients under 1f1b alone") {
  const auto plans = parallel_plans(training_of_blocks(Blocks{}, 4, 4), gpus(8, 80));
  const auto exposed = [&](PipelineSchedule schedule, int64_t chunks) {
    const ParallelPlan* plan = found(plans, {Strategy::kDdp, 1, 4, false, schedule, chunks});
    REQUIRE(plan);
    return plan->time.exposed_s;
  };
  const double hidden = exposed(PipelineSchedule::k1f1b, 1);
  CHECK(hidden > 0);
  CHECK(exposed(PipelineSchedule::kGpipe, 1) == hidden);
  CHECK(exposed(PipelineSchedule::kInterleaved, 2) > 1.5 * hidden);
}

TEST_CASE("a plan that the trainer refuses has its reason and is never chosen") {
  auto training = training_of_blocks(Blocks{}, 4, 2);
  training.refusal = [](const Config& config) -> std::string {
    return config.distributed.tensor == 1 ? "" : "no layers are shared";
  };
  const auto plans = parallel_plans(training, gpus(4, 80));
  const ParallelPlan* refused = found(plans, {Strategy::kDdp, 2});
  REQUIRE(refused);
  CHECK_FALSE(refused->accepted);
  CHECK_FALSE(refused->fits);
  CHECK(refused->reason == "no layers are shared");
  const auto plan = chosen_plan(plans, training, gpus(4, 80));
  REQUIRE(plan);
  CHECK(plan->division.tensor == 1);
}

TEST_CASE("a stage holds its layers alone, and the first one keeps most micro-batches") {
  Config config;
  config.trainer.grad_accumulation_steps = 8;
  config.distributed.pipeline = 4;
  config.data.block_size = 1024;
  const auto layout = Blocks{.vocabulary = 64}.layout();
  for (int64_t stage = 0; stage < 4; ++stage) {
    const StageLoad load = stage_load(config, layout, {true, 4, stage});
    CHECK(load.layers == 2);
    CHECK(load.in_flight == static_cast<double>(4 - stage));
    CHECK(load.kept_layers == 2.0 * static_cast<double>(4 - stage));
    CHECK(load.first == (stage == 0));
    CHECK(load.last == (stage == 3));
  }
}

TEST_CASE("micro-batches in flight by formula are those of the schedule's order") {
  DistributedConfig config;
  for (const auto schedule :
       {PipelineSchedule::kGpipe, PipelineSchedule::k1f1b, PipelineSchedule::kInterleaved}) {
    config.pipeline_schedule = schedule;
    config.pipeline_chunks = schedule == PipelineSchedule::kInterleaved ? 3 : 1;
    for (config.pipeline = 2; config.pipeline <= 8; ++config.pipeline) {
      for (const int64_t micro_batches : {config.pipeline, 4 * config.pipeline}) {
        const PipelineShape shape{static_cast<int>(config.pipeline),
                                  static_cast<int>(config.pipeline_chunks), micro_batches};
        for (int rank = 0; rank < shape.ranks; ++rank) {
          CAPTURE(name_of(schedule), config.pipeline, micro_batches, rank);
          CHECK(micro_batches_in_flight(config, rank, micro_batches) ==
                in_flight(pipeline_computations(schedule, shape, rank)));
        }
      }
    }
  }
}

// 16 layers and next to no output layer on links that take no time.
TEST_CASE("stages of a plan wait as the formula of their schedule says") {
  const Blocks blocks{.layers = 16, .vocabulary = 8};
  Cluster cluster = gpus(4, 80);
  cluster.network.inside = {0.0, 1e30};
  for (const int64_t micro_batches : {2, 4, 100}) {
    const auto plans = parallel_plans(training_of_blocks(blocks, 1, micro_batches), cluster);
    for (const auto& [schedule, chunks] : {std::pair{PipelineSchedule::kGpipe, 1},
                                           {PipelineSchedule::k1f1b, 1},
                                           {PipelineSchedule::kInterleaved, 2}}) {
      const ParallelPlan* plan = found(plans, {Strategy::kDdp, 1, 4, false, schedule, chunks});
      REQUIRE(plan);
      CAPTURE(name_of(schedule), micro_batches);
      const double idle = pipeline_idle_share({4, chunks, 4 * micro_batches});
      CHECK(plan->time.idle_share == Approx(idle).margin(2e-4));
      CHECK(plan->time.bubble_s ==
            Approx(plan->time.compute_s * idle / (1.0 - idle)).epsilon(0.01));
    }
  }
}

}  // namespace ddp::train
