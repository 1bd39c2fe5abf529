// Which plan a training gets: the cases of "when to use which strategy", as sizes.
#include "trainer/app/plan/parallel_plan.h"

#include <utility>

#include "tests/support/catch.h"
#include "tests/trainer/app/planned_blocks.h"
#include "trainer/config/config.h"
#include "trainer/parallel/strategy/pipeline_schedule.h"

namespace ddp::train {
namespace {

using Catch::Contains;
using Overrides = std::vector<std::string>;
using test::batches;
using test::blocks;
using test::gpus;
using test::kGB;
using test::kMillion;
using test::Model;

const Model kSmall(10, 10 * kMillion, 500 * kMillion);  // 1.6 GB of state
/// 7.5 billion parameters, the example of the ZeRO paper.
const Model kPaper(75, 100 * kMillion, 500 * kMillion);

std::vector<ParallelPlan> plans(const Model& model, const Config& config, const Cluster& cluster) {
  return plan_training({config, model, cluster}).plans;
}

/// The overrides of the choice; empty: nothing fits.
Overrides chosen(const Model& model, const Config& config, const Cluster& cluster) {
  return plan_training({config, model, cluster}).overrides;
}

Overrides strategy(const std::string& name) { return {"distributed_config.strategy=" + name}; }

int64_t bytes_of(const ParallelPlan& plan, const std::string& name) {
  for (const MemoryItem& item : plan.items)
    if (item.name == name) return item.bytes;
  return 0;
}

/// The plan of that name.
ParallelPlan named(const std::vector<ParallelPlan>& all, const std::string& name) {
  for (const ParallelPlan& plan : all)
    if (plan.name() == name) return plan;
  FAIL("no plan " << name);
  return {};
}

}  // namespace

TEST_CASE("a model that fits every GPU is trained with ddp as it is") {
  CHECK(chosen(kSmall, batches(8), gpus(1, 80)) == strategy("ddp"));
  CHECK(chosen(kSmall, batches(16), gpus(2, 80)) == strategy("ddp"));
  CHECK(chosen(kSmall, batches(16), gpus(8, 80)) == strategy("ddp"));
  const auto alone = plans(kSmall, batches(8), gpus(1, 80));
  REQUIRE(alone.size() == 1);
  CHECK(alone[0].time.sent_bytes == 0);
  CHECK(alone[0].time.exposed_s == 0);
}

TEST_CASE("on one GPU a smaller micro-batch comes before recomputation") {
  CHECK(chosen(kSmall, batches(16, 2), gpus(1, 7)) ==
        Overrides{"distributed_config.strategy=ddp", "trainer_config.batch_size=8",
                  "trainer_config.grad_accumulation_steps=4"});
  const Model wide(10, 10 * kMillion, 4 * kGB);
  CHECK(chosen(wide, batches(2), gpus(1, 4)) ==
        Overrides{"distributed_config.strategy=ddp", "gpt_config.activation_checkpointing=true"});
  Config recomputed = batches(2);
  recomputed.gpt.activation_checkpointing = true;
  CHECK(plans(wide, recomputed, gpus(1, 4))[0].time.compute_s ==
        Approx(4.0 / 3.0 * plans(wide, batches(2), gpus(1, 4))[0].time.compute_s));
}

TEST_CASE("a smaller micro-batch leaves a given global batch to the batch plan") {
  Config config = batches(16);
  config.trainer.global_batch_size = 64;
  CHECK(chosen(kSmall, config, gpus(2, 7)) ==
        Overrides{"distributed_config.strategy=ddp", "trainer_config.batch_size=8"});
  const auto few = plans(kSmall, config, gpus(8, 80));
  CHECK(few[0].reason == "8 copies of the model cannot share a global batch of 64 samples equally");
}

TEST_CASE("a model that does not fit a GPU gets the first strategy that fits") {
  const Model model(40, 100 * kMillion, 500 * kMillion);  // 4e9: 64 GB of state
  CHECK(chosen(model, batches(16), gpus(8, 80)) == strategy("ddp"));
  CHECK(chosen(model, batches(4), gpus(8, 40)) == strategy("zero1"));
  // With accumulation ZeRO-1 keeps all gradients, 16 GB; ZeRO-2 two buckets of them.
  CHECK(chosen(model, batches(4, 8), gpus(8, 45)) == strategy("zero1"));
  CHECK(chosen(model, batches(4, 8), gpus(8, 30)) == strategy("zero2"));
  CHECK_THAT(plans(model, batches(4, 8), gpus(8, 30))[0].reason,
             Contains("of which optimizer 32.00GB"));
}

TEST_CASE("a strategy that fits as it is comes before one that takes changes") {
  const Model model(40, 100 * kMillion, 2 * kGB);  // ddp: 64 GB of state
  CHECK(chosen(model, batches(8), gpus(8, 75)) == strategy("zero1"));
  const auto all = plans(model, batches(8), gpus(8, 75));
  CHECK_THAT(all[0].reason, Contains("; fits with trainer_config.batch_size=4 "
                                     "trainer_config.grad_accumulation_steps=2"));
  CHECK(all[1].largest_batch > all[0].largest_batch);
}

TEST_CASE("of plans that all take a smaller micro-batch the one with the largest wins") {
  const Model model(16, 100 * kMillion, 3 * kGB);  // 25.6 GB of state
  CHECK(chosen(model, batches(16, 8), gpus(8, 40)) ==
        Overrides{"distributed_config.strategy=zero2", "trainer_config.batch_size=8",
                  "trainer_config.grad_accumulation_steps=16"});
  const auto all = plans(model, batches(16, 8), gpus(8, 40));
  CHECK_THAT(all[0].reason, Contains("trainer_config.batch_size=4 "));
  CHECK_THAT(all[1].reason, Contains("trainer_config.batch_size=4 "));
}

TEST_CASE("where nothing fits, the ranks that would are named, or that none would") {
  const Config config = batches(1);
  CHECK(chosen(kPaper, config, gpus(2, 40)).empty());
  CHECK_THAT(plan_training({config, kPaper, gpus(2, 40)}).way_out,
             Contains("4 ranks fit with distributed_config.strategy=zero3: "));
  CHECK(chosen(kPaper, config, gpus(4, 40)) == strategy("zero3"));
  CHECK_THAT(plan_training({config, kPaper, gpus(2, 2)}).way_out,
             Contains("More ranks do not help"));
  // 12 width^2 = 3.2 billion parameters in a block: 26 GB of weights and gradients.
  CHECK_THAT(plan_training({config, blocks(2, 16384, 128), gpus(1, 24)}).way_out,
             Contains(" ranks fit with ") && Contains("distributed_config.tensor="));
}

TEST_CASE("between slow nodes a reduction for each micro-batch is not worth its memory") {
  const Model model(20, 50 * kMillion, 500 * kMillion);
  Cluster slow = gpus(16, 80, 2);
  slow.between.bytes_per_s = 0.5e9;
  const auto all = plans(model, batches(4, 8), slow);
  CHECK(chosen(model, batches(4, 8), slow) == strategy("ddp"));
  CHECK_THAT(all[0].reason, Contains("communication takes "));
  CHECK(all[2].time.exposed_s > 3 * all[1].time.exposed_s);
  slow.memory_bytes = 15 * kGB;  // ddp no longer fits, ZeRO-1 does
  CHECK(chosen(model, batches(4, 8), slow) == strategy("zero1"));
  CHECK_THAT(plans(model, batches(4, 8), gpus(16, 80, 2))[0].reason, Contains("computation takes"));
}

TEST_CASE("zero2 is not chosen for its speed: it never sends less in sight than zero1") {
  const Model model(20, 50 * kMillion, 500 * kMillion);
  Cluster cluster = gpus(16, 15, 2);  // ddp does not fit
  for (double gb_s = 0.5; gb_s < 512; gb_s *= 1.5) {
    cluster.between.bytes_per_s = gb_s * 1e9;
    const auto all = plans(model, batches(4, 8), cluster);
    CAPTURE(gb_s);
    CHECK(all[2].time.exposed_s >= all[1].time.exposed_s);
    CHECK(chosen(model, batches(4, 8), cluster) == strategy("zero1"));
  }
}

TEST_CASE("7.5 billion parameters on 64 ranks take what the ZeRO paper says") {
  const auto all = plans(Model(75, 100 * kMillion, 0), batches(1), gpus(64, 200));
  REQUIRE(all.size() == 4);
  const auto state = [](const ParallelPlan& plan) {
    return bytes_of(plan, "weights") + bytes_of(plan, "gradients") + bytes_of(plan, "optimizer");
  };
  CHECK(state(all[0]) == 120 * kGB);
  // 4 Psi + 12 Psi / N, in this trainer's float32 of gradients as well: 31.4 GB.
  CHECK(state(all[1]) == 30 * kGB + 90 * kGB / 64);
  CHECK(state(all[2]) == state(all[1]));
  CHECK(state(all[3]) == 120 * kGB / 64);  // the paper's 1.9 GB
  CHECK(bytes_of(all[0], "gradient_buckets") == 0);
  CHECK(bytes_of(all[1], "gradient_buckets") == 3 * 25 * 1024 * 1024 + 400 * kMillion);
}

TEST_CASE(
    "more ranks never take more memory, and a stricter strategy never more than a laxer one") {
  for (const int64_t micro_batches : {1, 4}) {
    std::vector<int64_t> before;
    for (int64_t ranks = 2; ranks <= 1024; ranks *= 2) {
      std::vector<int64_t> now;
      for (const auto& plan : plans(kPaper, batches(2, micro_batches), gpus(ranks, 80)))
        now.push_back(plan.memory_bytes);
      CAPTURE(ranks, micro_batches);
      CHECK(std::is_sorted(now.rbegin(), now.rend()));
      for (std::size_t i = 0; i < before.size(); ++i) CHECK(now[i] <= before[i]);
      if (!before.empty()) CHECK(now[2] < before[2]);
      before = now;
    }
  }
}

TEST_CASE("a step sends what the strategy's collectives do") {
  const double full = 400e6 * 3 / 4;  // 400 MB of gradients and as much of weights
  for (const int64_t micro_batches : {1, 4}) {
    const auto all = plans(kSmall, batches(1, micro_batches), gpus(4, 80));
    CHECK(all[0].time.sent_bytes == 2 * full);
    CHECK(all[1].time.sent_bytes == 2 * full);
    CHECK(all[2].time.sent_bytes == full * static_cast<double>(micro_batches) + full);
    CHECK(all[3].time.sent_bytes == 3 * full * static_cast<double>(micro_batches));
  }
  Config halved = batches(1);
  halved.distributed.gradient_compression = GradientCompression::kBf16;
  const auto all = plans(kSmall, halved, gpus(4, 80));
  CHECK(all[0].time.sent_bytes == full);
  CHECK_FALSE(all[1].accepted);
  CHECK_THAT(all[1].reason, Contains("distributed_config.gradient_compression"));
}

TEST_CASE("the update takes its bytes of the memory, or of the bus with offload") {
  Config config = batches(1);
  const auto on_gpus = plans(kPaper, config, gpus(4, 200));
  CHECK(on_gpus[0].time.update_s == Approx(7 * 30e9 / 3000e9));  // 3 g, then m and v twice
  config.distributed.offload = Offload::kOptimizer;
  const auto offloaded = plans(kPaper, config, gpus(4, 200));
  for (std::size_t i = 0; i < offloaded.size(); ++i) {
    const double sharers = i == 0 ? 1.0 : 4.0;
    CHECK(on_gpus[i].time.update_s == Approx(on_gpus[0].time.update_s / sharers));
    CHECK(offloaded[i].time.update_s == Approx(2 * 30e9 / 25e9 / sharers));
  }
}

TEST_CASE("passes hide communication on GPUs, and nothing hides it on CPU ranks") {
  Cluster cluster = gpus(4, 80);
  const double gather = all_gather_seconds(cluster, 400e6);
  for (const auto& plan : plans(kSmall, batches(64), cluster)) CHECK(plan.time.exposed_s == 0);
  cluster.flops_per_s = 1e30;  // no pass takes any time
  const auto bare = plans(kSmall, batches(64), cluster);
  cluster = gpus(4, 80);
  cluster.cuda = false;
  const auto cpus = plans(kSmall, batches(64), cluster);
  const std::vector<double> gathers = {2, 2, 2, 3};
  for (std::size_t i = 0; i < gathers.size(); ++i) {
    CHECK(bare[i].time.exposed_s == Approx(gathers[i] * gather));
    CHECK(cpus[i].time.exposed_s == Approx(gathers[i] * gather));
  }
}

TEST_CASE("published steps of GPT-2 on eight H100 come out within a quarter") {
  // llm.c: 524,288 tokens of 124M in 140 ms; 1,048,576 tokens of 1558M with ZeRO-1 in 2.80 s.
  struct Published {
    double flops_per_token;
    int64_t parameters;
    Config config;
    double seconds;
  };
  for (const auto& [flops, parameters, config, seconds] :
       {Published{855e6, 124'439'808, batches(64), 0.140},
        Published{10.29e9, 1'557'611'200, batches(16, 8), 2.80}}) {
    Cluster h100 = gpus(8, 80);
    h100.flops_per_s = 0.4 * 989e12 * 6.0 * static_cast<double>(parameters) / flops;
    CAPTURE(parameters);
    CHECK(plans(Model(1, parameters, 0), config, h100)[1].time.total_s() ==
          Approx(seconds).epsilon(0.25));
  }
}

TEST_CASE("a layer that no GPU holds is divided by tensor parallelism") {
  const Model model = blocks(2, 16384, 128);
  CHECK(chosen(model, batches(1), gpus(8, 24)).size() > 1);
  for (const ParallelPlan& plan : plans(model, batches(1), gpus(8, 24)))
    if (plan.config.distributed.tensor == 1) CHECK_FALSE(plan.fits);
}

TEST_CASE("every division of the ranks is a plan with the same global batch") {
  const auto all = plans(blocks(8, 1024), batches(4, 2), gpus(8, 80));
  for (const char* name : {"ddp", "zero3 tensor=2", "ddp tensor=8", "zero1 pipeline=2 1f1b",
                           "ddp tensor=2+sp pipeline=4 interleavedx2", "ddp pipeline=8 gpipe"}) {
    const ParallelPlan plan = named(all, name);
    CHECK(plan.config.trainer.grad_accumulation_steps ==
          2 * plan.config.distributed.tensor * plan.config.distributed.pipeline);
    CHECK(plan.data * ranks_of_copy(plan.config.distributed) == 8);
  }
}

TEST_CASE("a plan that the trainer refuses has its reason and is never chosen") {
  Model model = blocks(8, 1024);
  model.refuses = [](const DistributedConfig& how) { return how.tensor > 1; };
  const ParallelPlan refused = named(plans(model, batches(4, 2), gpus(4, 80)), "ddp tensor=2");
  CHECK_FALSE(refused.accepted);
  CHECK_FALSE(refused.fits);
  CHECK(refused.reason == "not so");
  CHECK(chosen(model, batches(64, 2), gpus(4, 80)) == strategy("ddp"));
  const auto two_nodes = plans(blocks(8, 1024), batches(4, 2), gpus(4, 80, 2));
  CHECK_THAT(named(two_nodes, "ddp tensor=4").reason, Contains("a node has 2"));
}

TEST_CASE("ranks that share layers wait for each layer's sums, and stages send hidden states") {
  const double hidden = 4.0 * 1024 * 1024;
  const Cluster two = gpus(2, 80);  // one copy: 16 micro-batches, two sums of a layer each way
  const auto shared = named(plans(blocks(4, 1024), batches(1, 8), two), "ddp tensor=2");
  CHECK(shared.time.exposed_s == Approx(16 * 4 * 4 * 2 * all_gather_seconds(two, hidden)));
  const auto all = plans(blocks(4, 1024), batches(1, 8), gpus(4, 80));
  const auto whole = named(all, "ddp tensor=2 pipeline=2 1f1b");
  const auto part = named(all, "ddp tensor=2+sp pipeline=2 1f1b");
  CHECK(whole.time.sent_bytes - part.time.sent_bytes == Approx(32 * 2 * hidden / 2));
}

// 16 layers and next to no output layer.
TEST_CASE("stages of a plan wait as the formula of their schedule says") {
  for (const int64_t micro_batches : {2, 4, 100}) {
    const auto all = plans(blocks(16, 1024, 1024, 8), batches(1, micro_batches), gpus(4, 80));
    for (const auto& [name, chunks] : {std::pair{"ddp pipeline=4 gpipe", 1},
                                       {"ddp pipeline=4 1f1b", 1},
                                       {"ddp pipeline=4 interleavedx2", 2}}) {
      CAPTURE(name, micro_batches);
      const double idle = pipeline_idle_share({4, chunks, 4 * micro_batches});
      const StepTime time = named(all, name).time;
      CHECK(time.bubble_s == Approx(time.compute_s * idle / (1.0 - idle)).epsilon(0.01));
    }
  }
}

TEST_CASE("a stage holds its layers alone, and the first one keeps most micro-batches") {
  Config config = batches(1, 8);
  config.distributed.pipeline = 4;
  config.data.block_size = 1024;
  for (int64_t stage = 0; stage < 4; ++stage) {
    const auto layout = blocks(8, 1024, 1024, 64).layout();
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

}  // namespace ddp::train
