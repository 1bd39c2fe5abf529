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

/// A file of `trainer doctor --json` with all-reduces of these sizes and times.
std::string report(int ranks, const std::string& runs) {
  return R"({"Collectives": {"backend": "gloo", "ranks": )" + std::to_string(ranks) +
         R"(, "runs": [{"name": "broadcast", "bytes": 9, "median_us": 1.0, "correct": true})" +
         runs + "]}}";
}

std::string all_reduce(int bytes, double microseconds) {
  return R"(, {"name": "all_reduce", "bytes": )" + std::to_string(bytes) + R"(, "median_us": )" +
         std::to_string(microseconds) + R"(, "correct": true})";
}

std::string refused(const PlanArgs& args) {
  return test::error_of<UserError>([&] { plan_cluster(args, {}); });
}

std::string refused_report(const std::string& text) {
  test::write_file("doctor.json", text);
  PlanArgs args = args_of(8);
  args.doctor = "doctor.json";
  return refused(args);
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
            "Links        370GB/s (assumed: NVLink of an H100) within the node"});
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
  CHECK_THAT(plan.facts[1], Contains("assumed: one core"));
  CHECK_THAT(plan.facts[2], Contains("assumed: shared memory"));
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
  CHECK_THAT(plan.facts[2], Contains("370GB/s (assumed: NVLink of an H100) within a node, "
                                     "12.5GB/s (--link) between nodes"));
}

TEST_CASE("doctor's all-reduces give latency and bandwidth") {
  const test::TestFolder folder;
  // A ring of four: 6 messages of 10 us, 1.5 times the bytes at 2 GB/s.
  test::write_file("doctor.json",
                   report(4, all_reduce(4096, 60 + 3.072) + all_reduce(16'000'000, 60 + 12000)));
  PlanArgs args = args_of(8);
  args.doctor = "doctor.json";
  const Cluster plan = plan_cluster(args, {});
  CHECK(plan.inside.latency_s == Approx(10e-6));
  CHECK(plan.inside.bytes_per_s == Approx(2e9));
  CHECK_THAT(plan.facts[2], Contains("2GB/s and 10.0 us between ranks (measured on 4 ranks"));
  args.nodes = 2;
  CHECK_THAT(refused(args), Contains("measured on 4 ranks; for several nodes measure on all 8"));
  args.gpus = 4;
  CHECK(plan_cluster(args, {}).nodes == 1);  // the slower links are in it
}

TEST_CASE("a file that is not doctor's is refused with the command that writes one") {
  const test::TestFolder folder;
  for (const char* text : {"x", "[]", "{}", R"({"Collectives": 3})", R"({"Collectives": {}})",
                           R"({"Collectives": {"ranks": 2, "runs": [{}]}})",
                           R"({"Collectives": {"ranks": 2, "runs": {"name": 1}}})"}) {
    CHECK_THAT(refused_report(text),
               Contains("doctor.json: cannot be read, or is not a report of doctor; write it with "
                        "ddp-run"));
  }
  CHECK_THAT(refused_report(std::string(100'000, '[')), Contains("is not a report of doctor"));
  CHECK_THAT(refused_report(""), Contains("cannot be read, or is not"));
  CHECK_THAT(refused_report(report(1, all_reduce(8, 1) + all_reduce(80, 2))),
             Contains("was measured on one rank"));
  CHECK_THAT(refused_report(report(2, all_reduce(8, 1) + all_reduce(8, 2))),
             Contains("lacks an all-reduce that took longer than a smaller one"));
  CHECK_THAT(refused_report(report(2, all_reduce(8, 2) + all_reduce(80, 1))),
             Contains("lacks an all-reduce that took longer"));
  PlanArgs args = args_of(8);
  args.doctor = folder.str();
  CHECK_THAT(refused(args), Contains("cannot be read, or is not"));
}

TEST_CASE("nodes divide the GPUs equally") {
  CHECK(refused(args_of(8, 3)) ==
        "--nodes: 8 GPUs in all cannot be divided equally among 3 nodes; give --gpus a multiple of "
        "3");
  CHECK(refused(args_of(4, 8)).find("--nodes: 4 GPUs") == 0);
}

}  // namespace ddp::train
