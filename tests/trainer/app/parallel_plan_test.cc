// Which plan a training gets: the cases of "when to use which strategy", as sizes.
#include "trainer/app/parallel_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "tests/support/catch.h"
#include "trainer/metrics/text.h"
#include "trainer/model/model_division.h"
#include "trainer/model/tensor_cost.h"
#include "trainer/parallel/pipeline_time.h"

namespace ddp::train {
namespace {

using Catch::Contains;

constexpr int64_t kMillion = 1'000'000;
constexpr int64_t kGB = 1'000'000'000;

/// A model of equal matrices, 6 FLOPs for each parameter and token.
struct Model {
  int64_t matrices = 10;
  int64_t matrix = 10 * kMillion;
  int64_t tokens = 1024;                 ///< Of a sample.
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
    return with_items(state_items(config, shapes, place),
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

Cluster gpus(int64_t ranks, int64_t gigabytes, int64_t nodes = 1) {
  constexpr double kAttained = 400e12;
  constexpr double kMemory = 3000e9;
  return {{ranks, nodes, {29e-6, 370e9}, {29e-6, 50e9}}, true, gigabytes * kGB, kAttained, kMemory};
}

std::optional<ParallelPlan> choice(const PlannedTraining& training, const Cluster& cluster) {
  return chosen_plan(parallel_plans(training, cluster), training, cluster);
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

/// A GPT's layout and sizes, in blocks of 12 width^2 parameters; activations divide like layers.
struct Blocks {
  int64_t layers = 8;
  int64_t width = 1024;
  int64_t vocabulary = 8192;
  int64_t tokens = 1024;

  WeightsLayout layout() const {
    WeightsLayout places = {{"table",
                             {vocabulary, width},
                             WeightPlace::kBeforeBlocks,
                             Split::kVocabulary,
                             1,
                             vocabulary}};
    for (int64_t i = 0; i < layers; ++i)
      places.push_back({"h." + std::to_string(i), {12 * width, width}, i, Split::kColumns, 1, 8});
    places.push_back({"head",
                      {vocabulary, width},
                      WeightPlace::kAfterBlocks,
                      Split::kVocabulary,
                      1,
                      vocabulary});
    return places;
  }
};

PlannedTraining training_of_blocks(const Blocks& blocks, int64_t batch_size,
                                   int64_t micro_batches = 1) {
  PlannedTraining training;
  training.config.trainer.batch_size = batch_size;
  training.config.trainer.grad_accumulation_steps = micro_batches;
  training.config.data.block_size = blocks.tokens;
  training.layout = blocks.layout();
  training.memory = [blocks](const Config& config, const ComputePlace& place) {
    std::vector<ParameterShape> shapes;
    for (const WeightPlace& weight : blocks.layout())
      shapes.push_back({weight.name, weight.shape, ParameterRole::kOther});
    const StageLoad load = stage_load(config, blocks.layout(), place);
    const double row =
        static_cast<double>(config.trainer.batch_size * blocks.tokens * blocks.width);
    const double bytes =
        load.kept_layers * row * 40.0 / static_cast<double>(config.distributed.tensor);
    return with_items(state_items(config, shapes, place, blocks.layout()),
                      {{"activations", static_cast<int64_t>(bytes)}});
  };
  training.flops_per_sample = [blocks](const Config& config) {
    return 6.0 * static_cast<double>(elements_of(blocks.layout()) * config.data.block_size);
  };
  training.largest_layer =
      std::max(12 * blocks.width * blocks.width, blocks.vocabulary * blocks.width);
  training.units = blocks.layers;
  training.root = 2 * blocks.vocabulary * blocks.width;
  return training;
}

const ParallelPlan* found(const std::vector<ParallelPlan>& plans, const Division& division) {
  for (const ParallelPlan& plan : plans)
    if (plan.division == division) return &plan;
  return nullptr;
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
  const auto plans = parallel_plans(training_of(kPaper, 1), gpus(64, 200));
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

// Gradients of several chunks, or of weights that come last, are complete after the last pass only.
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
  CHECK(exposed(PipelineSchedule::kZeroBubble, 1) > 1.5 * hidden);
  CHECK(exposed(PipelineSchedule::kInterleaved, 2) == exposed(PipelineSchedule::kZeroBubble, 1));
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

TEST_CASE("under zero_bubble every stage keeps as many micro-batches as the first") {
  Config config;
  config.trainer.grad_accumulation_steps = 8;
  config.distributed.pipeline = 4;
  config.distributed.pipeline_schedule = PipelineSchedule::kZeroBubble;
  config.data.block_size = 1024;
  const auto layout = Blocks{.vocabulary = 64}.layout();
  for (int64_t stage = 0; stage < 4; ++stage) {
    const StageLoad load = stage_load(config, layout, {true, 4, stage});
    CHECK(load.waiting == static_cast<double>(stage));
    CHECK(load.in_flight + load.waiting == 4.0);
  }
  config.trainer.grad_accumulation_steps = 2;
  CHECK(stage_load(config, layout, {true, 4, 3}).waiting == 1.0);
  CHECK(stage_load(config, layout, {true, 4, 1}).waiting == 0.0);
}

TEST_CASE("micro-batches in flight by formula are those of the schedule's order") {
  DistributedConfig config;
  for (const auto schedule : {PipelineSchedule::kGpipe, PipelineSchedule::k1f1b,
                              PipelineSchedule::kInterleaved, PipelineSchedule::kZeroBubble}) {
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

TEST_CASE("a played schedule of equal stages waits as its formula says") {
  constexpr double kForward = 1.0;
  constexpr double kBackward = 2.0;
  for (const auto schedule : {PipelineSchedule::kGpipe, PipelineSchedule::k1f1b,
                              PipelineSchedule::kInterleaved, PipelineSchedule::kZeroBubble}) {
    const int chunks = schedule == PipelineSchedule::kInterleaved ? 2 : 1;
    for (const int64_t micro_batches : {8, 16, 400}) {
      const PipelineShape shape{4, chunks, micro_batches};
      const std::vector<StageSeconds> stages(static_cast<std::size_t>(shape.stages()),
                                             {kForward, kBackward});
      const auto played = pipeline_time(schedule, shape, stages, 0.0);
      const double work = static_cast<double>(micro_batches * chunks) * (kForward + kBackward);
      const double bubble = pipeline_bubble(schedule, shape, kForward, 1.0, 1.0);
      CAPTURE(name_of(schedule), micro_batches);
      CHECK(played.seconds == Approx(work + bubble));
      CHECK(played.idle_share == Approx(bubble / (work + bubble)));
    }
  }
}

}  // namespace ddp::train
