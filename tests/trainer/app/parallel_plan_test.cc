// Which plan a training gets: the cases of "when to use which strategy", as sizes.
#include "trainer/app/plan/parallel_plan.h"

#include <utility>

#include "tests/support/catch.h"
#include "tests/trainer/app/planned_blocks.h"

namespace ddp::train {
namespace {

using Catch::Contains;
using test::choice;
using test::gpus;
using test::kGB;
using test::kMillion;

/// A model of equal matrices, 6 FLOPs for each parameter and token.
struct Model {
  int64_t matrices = 10;
  int64_t matrix = 10 * kMillion;
  int64_t tokens = 1024;                 ///< Per sample.
  int64_t activations = 500 * kMillion;  ///< Bytes of a sample; a tenth with checkpointing.

  double flops() const {
    return 6.0 * static_cast<double>(matrices * matrix) * static_cast<double>(tokens);
  }
};

PlannedTraining training_of(const Model& model, int64_t batch_size, int64_t micro_batches = 1) {
  PlannedTraining training;
  training.config.trainer.batch_size = batch_size;
  training.config.trainer.grad_accumulation_steps = micro_batches;
  training.memory = [model](const Config& config, const ComputePlace& place) {
    std::vector<ParameterShape> shapes;
    for (int64_t i = 0; i < model.matrices; ++i)
      shapes.push_back({"layer." + std::to_string(i), {model.matrix}, ParameterRole::kOther});
    const int64_t parts = config.gpt.activation_checkpointing ? 10 : 1;
    return rank_items(config, shapes, place,
                      {{"activations", config.trainer.batch_size * model.activations / parts}});
  };
  training.flops_per_sample = [model](const Config& config) {
    return model.flops() * (config.gpt.activation_checkpointing ? 4.0 / 3.0 : 1.0);
  };
  training.savers = {{"gpt_config.activation_checkpointing=true",
                      [](Config& config) { config.gpt.activation_checkpointing = true; }}};
  training.largest_layer = model.matrix;
  training.matrices = model.matrices;
  return training;
}

std::string chosen(const PlannedTraining& training, const Cluster& cluster) {
  const auto plan = choice(training, cluster);
  return plan ? std::string(plan->strategy_name()) : "none";
}

int64_t bytes_of(const ParallelPlan& plan, const std::string& name) {
  for (const MemoryItem& item : plan.items)
    if (item.name == name) return item.bytes;
  return 0;
}

/// 7.5 billion parameters, the example of the ZeRO paper.
const Model kPaper{.matrices = 75, .matrix = 100 * kMillion};

}  // namespace

TEST_CASE("a model that fits one GPU is trained there as it is") {
  const auto plan = choice(training_of({}, 8), gpus(1, 80));
  REQUIRE(plan);
  CHECK(plan->division.strategy == Strategy::kDdp);
  CHECK(plan->changes.empty());
  CHECK(plan->time.sent_bytes == 0);
  CHECK(plan->time.exposed_s == 0);
  const auto plans = parallel_plans(training_of({}, 8), gpus(1, 80));
  CHECK_FALSE(plans[1].fits);
  CHECK_THAT(plans[1].reason, Contains("divides the state among ranks, and there is one"));
}

TEST_CASE("on one GPU a smaller micro-batch comes before recomputation") {
  const Model model;  // 1.6 GB of state, 0.5 GB a sample
  const auto smaller = choice(training_of(model, 16, 2), gpus(1, 7));
  REQUIRE(smaller);
  CHECK(smaller->changes == std::vector<std::string>{"trainer_config.batch_size=8",
                                                     "trainer_config.grad_accumulation_steps=4"});
  CHECK(smaller->largest_batch == 8);
  const Model wide{.activations = 4 * kGB};
  const auto recomputed = choice(training_of(wide, 2), gpus(1, 4));
  REQUIRE(recomputed);
  CHECK(recomputed->changes ==
        std::vector<std::string>{"gpt_config.activation_checkpointing=true"});
  CHECK(recomputed->time.compute_s ==
        Approx(4.0 / 3.0 * 2 * wide.flops() / gpus(1, 4).flops_per_s));
}

TEST_CASE("a smaller micro-batch leaves a given global batch to the batch plan") {
  auto training = training_of({}, 16);
  training.config.trainer.global_batch_size = 64;
  const auto plan = choice(training, gpus(2, 7));
  REQUIRE(plan);
  CHECK(plan->changes == std::vector<std::string>{"trainer_config.batch_size=8"});
  // 64 samples in micro-batches of 16 or of 8: the same work.
  CHECK(plan->time.compute_s == Approx(32 * Model{}.flops() / gpus(2, 7).flops_per_s));
}

TEST_CASE("a model that fits every GPU of a node is trained with ddp") {
  CHECK(chosen(training_of({}, 16), gpus(8, 80)) == "ddp");
  CHECK(chosen(training_of({}, 16), gpus(2, 80)) == "ddp");
}

TEST_CASE("a model that does not fit a GPU gets the first strategy that fits") {
  const Model model{.matrices = 40, .matrix = 100 * kMillion};  // 4e9: 64 GB of state
  CHECK(chosen(training_of(model, 4), gpus(8, 80)) == "ddp");
  CHECK(chosen(training_of(model, 4), gpus(8, 40)) == "zero1");
  // With accumulation ZeRO-1 keeps all gradients, 16 GB; ZeRO-2 two buckets of them.
  CHECK(chosen(training_of(model, 4, 8), gpus(8, 45)) == "zero1");
  CHECK(chosen(training_of(model, 4, 8), gpus(8, 30)) == "zero2");
  const auto plans = parallel_plans(training_of(model, 4, 8), gpus(8, 30));
  CHECK_THAT(plans[0].reason, Contains("of which optimizer 32.00GB"));
  CHECK_FALSE(plans[1].fits);
  CHECK(plans[2].fits);
}

TEST_CASE("a strategy that fits as it is comes before one that takes changes") {
  const Model model{.matrices = 40, .matrix = 100 * kMillion, .activations = 2 * kGB};
  const auto plan = choice(training_of(model, 8), gpus(8, 75));  // ddp: 64 GB of state
  REQUIRE(plan);
  CHECK(plan->division.strategy == Strategy::kZero1);
  CHECK(plan->changes.empty());
  const auto plans = parallel_plans(training_of(model, 8), gpus(8, 75));
  CHECK_THAT(plans[0].reason, Contains("; fits with trainer_config.batch_size=4 "
                                       "trainer_config.grad_accumulation_steps=2"));
  CHECK(plans[1].largest_batch > plans[0].largest_batch);
}

TEST_CASE("of plans that all take a smaller micro-batch the one with the largest wins") {
  const Model model{.matrices = 16, .matrix = 100 * kMillion, .activations = 3 * kGB};
  const auto training = training_of(model, 16, 8);  // 25.6 GB of state
  const auto plan = choice(training, gpus(8, 40));
  REQUIRE(plan);
  CHECK(plan->division.strategy == Strategy::kZero2);
  CHECK(plan->batch_size == 8);
  const auto plans = parallel_plans(training, gpus(8, 40));
  CHECK_THAT(plans[0].reason, Contains("trainer_config.batch_size=4 "));
  CHECK_THAT(plans[1].reason, Contains("trainer_config.batch_size=4 "));
}

TEST_CASE("a layer that no GPU holds takes tensor parallelism, which is said") {
  const Model model{.matrices = 2, .matrix = 5000 * kMillion};
  const auto training = training_of(model, 1);
  CHECK_FALSE(choice(training, gpus(64, 24)));
  const auto ways = ways_out(training, gpus(64, 24));
  REQUIRE(ways.size() == 1);
  CHECK_THAT(ways[0], Contains("The largest layer has 5.00G parameters") && Contains("40.00GB") &&
                          Contains("Only tensor parallelism divides a layer") &&
                          Contains("ZeRO-3 gathers it whole"));
}

TEST_CASE("where nothing fits, the ranks that would are named, or that none would") {
  const auto training = training_of(kPaper, 1);
  CHECK_FALSE(choice(training, gpus(2, 40)));
  const auto more = ways_out(training, gpus(2, 40));
  REQUIRE(more.size() == 1);
  CHECK_THAT(more[0], Contains("4 ranks fit with strategy zero3"));
  CHECK(chosen(training, gpus(4, 40)) == "zero3");
  CHECK_FALSE(choice(training, gpus(2, 2)));
  const auto none = ways_out(training, gpus(2, 2));
  CHECK_THAT(none[0], Contains("More ranks do not help") && Contains("even with zero3"));
}

TEST_CASE("between slow nodes a reduction for each micro-batch is not worth its memory") {
  const Model model{.matrices = 20, .matrix = 50 * kMillion};
  Cluster slow = gpus(16, 80, 2);
  slow.network.between.bytes_per_s = 0.5e9;
  const auto training = training_of(model, 4, 8);
  const auto plans = parallel_plans(training, slow);
  CHECK(chosen(training, slow) == "ddp");
  CHECK(plans[0].time.limited_by() == "communication");
  CHECK_THAT(plans[0].reason, Contains("communication takes "));
  CHECK(plans[2].time.exposed_s > 3 * plans[1].time.exposed_s);
  // Where ddp no longer fits, ZeRO-1 does.
  slow.memory_bytes = 15 * kGB;
  CHECK(chosen(training, slow) == "zero1");
  CHECK(parallel_plans(training, gpus(16, 80, 2))[0].time.limited_by() == "computation");
}

TEST_CASE("7.5 billion parameters on 64 ranks take what the ZeRO paper says") {
  Model paper = kPaper;
  paper.activations = 0;
  const auto plans = parallel_plans(training_of(paper, 1), gpus(64, 200));
  REQUIRE(plans.size() == 4);
  const auto state = [](const ParallelPlan& plan) {
    return bytes_of(plan, "weights") + bytes_of(plan, "gradients") + bytes_of(plan, "optimizer");
  };
  CHECK(state(plans[0]) == 120 * kGB);
  // 4 Psi + 12 Psi / N, in this trainer's float32 of gradients as well: 31.4 GB.
  CHECK(state(plans[1]) == 30 * kGB + 90 * kGB / 64);
  CHECK(state(plans[2]) == state(plans[1]));
  CHECK(state(plans[3]) == 120 * kGB / 64);  // the paper's 1.9 GB
  CHECK(bytes_of(plans[0], "gradient_buckets") == 0);
  CHECK(bytes_of(plans[1], "gradient_buckets") == 3 * 25 * 1024 * 1024 + 400 * kMillion);
}

TEST_CASE(
    "more ranks never take more memory, and a stricter strategy never more than a laxer one") {
  for (const int64_t micro_batches : {1, 4}) {
    const auto training = training_of(kPaper, 2, micro_batches);
    std::vector<int64_t> before;
    for (int64_t ranks = 2; ranks <= 1024; ranks *= 2) {
      std::vector<int64_t> now;
      for (const auto& plan : parallel_plans(training, gpus(ranks, 80)))
        now.push_back(plan.memory_bytes);
      CAPTURE(ranks, micro_batches);
      CHECK(now[1] <= now[0]);
      CHECK(now[2] <= now[1]);
      CHECK(now[3] <= now[2]);
      for (std::size_t i = 0; i < before.size(); ++i) CHECK(now[i] <= before[i]);
      if (!before.empty()) CHECK(now[2] < before[2]);
      before = now;
    }
  }
}

TEST_CASE("plans come in the order ddp, zero1, zero2, zero3, whatever the configuration names") {
  auto training = training_of({}, 4);
  training.config.distributed.strategy = Strategy::kZero2;
  const auto plans = parallel_plans(training, gpus(6, 80, 2));
  std::vector<std::string> names;
  for (const auto& plan : plans) {
    names.emplace_back(plan.strategy_name());
    CHECK(plan.division.tensor * plan.division.pipeline * plan.data == 6);
    CHECK_FALSE(plan.reason.empty());
  }
  CHECK(names == std::vector<std::string>{"ddp", "zero1", "zero2", "zero3"});
}

TEST_CASE("a step sends what the strategy's collectives do") {
  const Model model;  // 400 MB of gradients and as much of weights
  const double full = 400e6 * 3 / 4;
  for (const int64_t micro_batches : {1, 4}) {
    const auto plans = parallel_plans(training_of(model, 1, micro_batches), gpus(4, 80));
    CHECK(plans[0].time.sent_bytes == 2 * full);
    CHECK(plans[1].time.sent_bytes == 2 * full);
    CHECK(plans[2].time.sent_bytes == full * static_cast<double>(micro_batches) + full);
    CHECK(plans[3].time.sent_bytes == 3 * full * static_cast<double>(micro_batches));
  }
  auto halved = training_of(model, 1);
  halved.config.distributed.gradient_compression = GradientCompression::kBf16;
  const auto plans = parallel_plans(halved, gpus(4, 80));
  CHECK(plans[0].time.sent_bytes == full);
  CHECK_FALSE(plans[1].fits);
  CHECK_THAT(plans[1].reason, Contains("without distributed_config.gradient_compression"));
}

TEST_CASE("copies in RAM of a divided state need each rank to save its part") {
  auto training = training_of({}, 4);
  training.config.trainer.ram_snapshots = true;
  for (const auto& plan : parallel_plans(training, gpus(4, 80))) CHECK(plan.fits);
  training.config.trainer.snapshot_shards = AutoSwitch::kFalse;
  const auto plans = parallel_plans(training, gpus(4, 80));
  CHECK(plans[0].fits);
  CHECK_THAT(plans[1].reason, Contains("without trainer_config.snapshot_shards=false"));
  CHECK_THAT(plans[2].reason, Contains("without trainer_config.snapshot_shards=false"));
}

TEST_CASE("an offloaded update takes the time of its gradients and weights on the bus") {
  auto training = training_of(kPaper, 1);
  const auto on_gpus = parallel_plans(training, gpus(4, 200));
  training.config.distributed.offload = Offload::kOptimizer;
  const auto offloaded = parallel_plans(training, gpus(4, 200));
  constexpr double kBus = 8.0 * 7500 * kMillion / 25e9;
  REQUIRE(offloaded.size() == 4);
  for (std::size_t i = 0; i < offloaded.size(); ++i) {
    const double sharers = offloaded[i].division.strategy == Strategy::kDdp ? 1.0 : 4.0;
    CHECK(offloaded[i].time.update_s == Approx(kBus / sharers));
    CHECK(offloaded[i].time.update_s > on_gpus[i].time.update_s);
    CHECK(offloaded[i].memory_bytes < on_gpus[i].memory_bytes);
  }
}

TEST_CASE("backward passes hide communication, but for the last bucket and the gathered weights") {
  const Model model;
  const Cluster cluster = gpus(4, 80);
  const auto plans = parallel_plans(training_of(model, 64), cluster);
  const double bucket = 400e6 / 10;  // a matrix, as it exceeds 25 MiB
  const double of_bucket = all_gather_seconds(cluster.network, bucket);
  const double of_part = all_gather_seconds(cluster.network, 400e6 / 16);
  CHECK(plans[0].time.exposed_s == Approx(2 * of_bucket));
  CHECK(plans[1].time.exposed_s == Approx(17 * of_part));
  CHECK(plans[0].time.update_s == Approx(7 * 400e6 / 3000e9));  // g, then w, m and v twice
  CHECK(plans[1].time.update_s == Approx(plans[0].time.update_s / 4));
  Cluster fast = cluster;
  fast.flops_per_s = 1e30;
  const auto bare = parallel_plans(training_of(model, 64), fast);
  CHECK(bare[0].time.exposed_s == Approx(2 * 10 * of_bucket));
}

TEST_CASE("forward passes hide the gathered weights of blocks under zero1") {
  const Model model;
  auto training = training_of(model, 64);
  training.units = 9;
  training.root = model.matrix;
  Cluster cluster = gpus(4, 80);
  const double gather = 16 * all_gather_seconds(cluster.network, 400e6 / 16);
  const double of_part = gather / 16;
  CHECK(parallel_plans(training, cluster)[1].time.exposed_s == Approx(of_part + gather / 10));
  cluster.flops_per_s = 1e30;
  CHECK(parallel_plans(training, cluster)[1].time.exposed_s == Approx(2 * gather));
}

TEST_CASE("on CPU ranks nothing hides communication") {
  const auto training = training_of(Model{}, 64);
  Cluster cpus = gpus(4, 80);
  cpus.cuda = false;
  const auto plans = parallel_plans(training, cpus);
  CHECK(plans[0].time.exposed_s == Approx(2 * 10 * all_gather_seconds(cpus.network, 400e6 / 10)));
  CHECK(plans[1].time.exposed_s == Approx(2 * 16 * all_gather_seconds(cpus.network, 400e6 / 16)));
}

TEST_CASE("small matrices share buckets of distributed_config.bucket_cap_mb") {
  const Model model{.matrices = 1000, .matrix = 100'000};
  const Cluster cluster = gpus(4, 80);
  auto training = training_of(model, 64);
  const auto exposed = [&](double buckets) {
    return Approx(2 * all_gather_seconds(cluster.network, 400e6 / buckets));
  };
  CHECK(parallel_plans(training, cluster)[0].time.exposed_s == exposed(16));
  training.config.distributed.bucket_cap_mb = 100;
  CHECK(parallel_plans(training, cluster)[0].time.exposed_s == exposed(4));
}

TEST_CASE("published steps of GPT-2 on eight H100 come out within a quarter") {
  // llm.c: 524,288 tokens of 124M in 140 ms; 1,048,576 tokens of 1558M with ZeRO-1 in 2.80 s.
  struct Published {
    double flops_per_token;
    int64_t parameters;
    int64_t micro_batches;
    double seconds;
  };
  for (const auto& [flops, parameters, micro_batches, seconds] :
       {Published{855e6, 124'439'808, 1, 0.140}, Published{10.29e9, 1'557'611'200, 8, 2.80}}) {
    const Model model{.matrices = 1, .matrix = parameters, .activations = 0};
    auto training = training_of(model, 64, 1);
    training.config.trainer.batch_size = micro_batches == 1 ? 64 : 16;
    training.config.trainer.grad_accumulation_steps = micro_batches;
    training.matrices = 4 * 12 + 2;
    training.flops_per_sample = [f = flops](const Config&) { return 1024 * f; };
    Cluster h100 = gpus(8, 80);
    h100.flops_per_s = 0.4 * 989e12;
    const auto plans = parallel_plans(training, h100);
    CAPTURE(parameters);
    CHECK(plans[1].time.total_s() == Approx(seconds).epsilon(0.25));
  }
}

}  // namespace ddp::train
