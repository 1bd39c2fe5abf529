// What the options of `trainer plan` say of the GPUs, and what is assumed.
#include "trainer/app/plan/plan_cluster.h"

#include "tests/support/catch.h"

#include "tests/trainer/config/test_files.h"
#include "trainer/config/config.h"
#include "trainer/runtime/error.h"

namespace ddp::train {
namespace {

using Catch::Contains;

PlanArgs args_of(int64_t count, int64_t nodes = 1) {
  PlanArgs args;
  args.gpus = count;
  args.nodes = nodes;
  args.memory_gb = 80;
  return args;
}

Config amp() {
  Config config;
  config.trainer.use_amp = true;
  return config;
}

std::string refused(const PlanArgs& args) {
  return test::error_of<UserError>([&] { plan_cluster(args, {}); });
}

}  // namespace

TEST_CASE("what is not given is an H100's, and said to be assumed") {
  const Cluster plan = plan_cluster(args_of(8), amp());
  CHECK(plan.cuda);
  CHECK(plan.memory_bytes == 80'000'000'000);
  CHECK(plan.flops_per_s == Approx(0.4 * 989e12));
  CHECK(plan.facts ==
        std::vector<std::string>{
            "Ranks        8 GPUs of 80.00GB, 1 node",
            "Computation  395.6 TFLOP/s a rank: 40% (assumed) of 989 (assumed: H100, 16-bit)",
            "Links        370GB/s between ranks (assumed)",
            "Error        step within 25 % of published runs on 8 H100s, memory unmeasured"});
  CHECK(plan_cluster(args_of(8), {}).flops_per_s == Approx(0.4 * 67e12));
  Config tf32;
  tf32.trainer.tf32 = true;
  CHECK(plan_cluster(args_of(8), tf32).flops_per_s == Approx(0.4 * 494.5e12));
}

TEST_CASE("an assumed link gathers 58 MB on eight GPUs at 150 GB/s, as measured on H100s") {
  const double seconds = all_gather_seconds(plan_cluster(args_of(8), amp()), 58e6);
  CHECK(58e6 * 7 / 8 / seconds == Approx(150e9).epsilon(0.01));
}

TEST_CASE("of a node's ring and the ring of nodes the slower counts") {
  const auto seconds = [](int64_t ranks, int64_t nodes, Link inside, Link between, double bytes) {
    return all_gather_seconds({ranks, nodes, inside, between, true, 0, 0, 0, {}}, bytes);
  };
  CHECK(seconds(8, 1, {10e-6, 100e9}, {}, 800e9) == Approx(70e-6 + 7.0));
  CHECK(seconds(1, 1, {10e-6, 100e9}, {}, 800e9) == 0.0);
  CHECK(seconds(16, 2, {0, 100e9}, {0, 100e9}, 800e9) == Approx(7.0));
  CHECK(seconds(16, 2, {0, 100e9}, {0, 1e9}, 800e9) == Approx(50.0));  // half over eight links
  CHECK(seconds(4, 4, {}, {1e-3, 1e9}, 4e9) == Approx(3e-3 + 3.0));
}

TEST_CASE("ranks on CPUs have the speed of cores and of shared memory") {
  Config config;
  config.trainer.device = DeviceChoice::kCpu;
  const Cluster plan = plan_cluster(args_of(4), config);
  CHECK_FALSE(plan.cuda);
  CHECK_THAT(plan.facts[0], Contains("4 CPU ranks"));
  CHECK_THAT(plan.facts[1], Contains("assumed: core"));
  CHECK_THAT(plan.facts[2], Contains("3.5GB/s between ranks (assumed)"));
}

TEST_CASE(
    "the option --tflops comes before the configuration's peak, and that before the assumed one") {
  Config config = amp();
  config.logging.peak_tflops = 312;
  PlanArgs args = args_of(8);
  CHECK_THAT(plan_cluster(args, config).facts[1], Contains("of 312 (logging_config.peak_tflops)"));
  args.tflops = 200;
  args.efficiency = 0.5;
  const Cluster plan = plan_cluster(args, config);
  CHECK(plan.flops_per_s == 100e12);
  CHECK_THAT(plan.facts[1], Contains("100 TFLOP/s a rank: 50% (--efficiency) of 200 (--tflops)"));
}

TEST_CASE("the option --link is between the nodes, or within the only one") {
  PlanArgs args = args_of(8);
  args.link_gb_s = 12.5;
  CHECK(plan_cluster(args, {}).inside.bytes_per_s == 12.5e9);
  args = args_of(8, 2);
  args.link_gb_s = 12.5;
  const Cluster plan = plan_cluster(args, {});
  CHECK(plan.between.bytes_per_s == 12.5e9);
  CHECK(plan.inside.bytes_per_s == 370e9);
  CHECK_THAT(plan.facts[2], Contains("370GB/s within a node (assumed), "
                                     "12.5GB/s between nodes (--link)"));
}

TEST_CASE("the stated error holds for the speeds of a plan") {
  Config cpus;
  cpus.trainer.device = DeviceChoice::kCpu;
  PlanArgs measured = args_of(2);
  measured.tflops = 0.06;
  measured.link_gb_s = 2.2;
  const auto error = [](const PlanArgs& args, const Config& config) {
    return plan_cluster(args, config).facts[3];
  };
  CHECK_THAT(error(measured, cpus), Contains("step unmeasured without --tflops, --efficiency"));
  measured.efficiency = 1.0;
  CHECK_THAT(error(measured, cpus), Contains("step -17 to +2 % on 2 ranks"));
  CHECK_THAT(error(args_of(2), cpus), Contains("step unmeasured without --tflops"));
  CHECK_THAT(error(args_of(8), amp()), Contains("within 25 % of published runs"));
  CHECK_THAT(error(args_of(16, 2), amp()), Contains("step and memory unmeasured"));
  CHECK_THAT(error(args_of(8), {}), Contains("step and memory unmeasured"));
  CHECK_THAT(error(measured, amp()), Contains("step and memory unmeasured"));
}

TEST_CASE("nodes divide the GPUs equally") {
  CHECK(refused(args_of(8, 3)) ==
        "--nodes: 8 GPUs in all cannot be divided equally among 3 nodes; give --gpus a multiple of "
        "3");
  CHECK(refused(args_of(4, 8)).find("--nodes: 4 GPUs") == 0);
}

}  // namespace ddp::train
