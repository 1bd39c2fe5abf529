// What a GPU or NCCL does wrong ends a run in time, with one line, and costs no snapshot.
#include <signal.h>

#include <algorithm>

#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"
#include "tests/gpu/gpu_job.h"

namespace ddp::test {
namespace {

using Catch::Contains;

const Words kSaves = {"trainer_config.max_steps=18", "trainer_config.save_every_steps=2"};

/// Runs to the end from the last snapshot, and compares with a run that nothing has befallen.
void check_resumes_exactly(const Workspace& place) {
  const Workspace unbroken;
  succeed(on_gpus(unbroken, 1, alone(unbroken, kSaves)));
  const auto resumed = succeed(on_gpus(place, 1, alone(place, kSaves)));
  INFO(resumed.out << resumed.err);
  CHECK_THAT(resumed.out, Contains("Resuming training from snapshot"));
  CHECK(differences(unbroken.snapshot(), place.snapshot()) == Words{});
}

}  // namespace

TEST_CASE("a process whose kernel never ends leaves after SIGTERM, and resumes exactly") {
  if (!gpus_are_faked()) return;
  const Workspace place;
  auto options = on_gpus(place, 1, alone(place, kSaves));
  options.set["FAKECUDA_STUCK_AT"] = "1500";
  ChildProgram run(options);
  run.wait_for("a kernel never ends", 1, kPatience);
  run.signal(SIGTERM);
  CHECK(run.wait_exit(kPatience) == 128 + SIGTERM);
  CHECK_THAT(run.err(), Contains("waited for its GPU, which has made no progress"));
  check_resumes_exactly(place);
}

namespace {

void check_illegal_addresses(const Words& launches) {
  for (const std::string& launch : launches) {
    INFO("launch " << launch);
    const Workspace place;
    const Words words = joined(kSaves, {"trainer_config.cuda_graphs=false"});  // many launches
    auto options = on_gpus(place, 1, alone(place, words));
    options.set["FAKECUDA_FAULT_AT"] = launch;
    const auto run = finish(options);
    INFO(run.out << run.err);
    CHECK(run.exit == 1);
    CHECK(errors_of(run.err).size() == 1);
    CHECK_THAT(run.err, Contains("an illegal memory access was encountered"));
    CHECK_THAT(run.err, !Contains("terminate called") && !Contains("frame #"));
    if (launch == "2222") check_resumes_exactly(place);
  }
}

}  // namespace

// Whichever thread sees it first: training, the copy of a snapshot, the loader.
TEST_CASE("an illegal address at any moment ends a run with one line, and costs no snapshot") {
  if (!gpus_are_faked()) return;
  check_illegal_addresses({"1013", "2222"});
}

TEST_CASE("an illegal address between those moments ends a run with one line", "[long]") {
  if (!gpus_are_faked()) return;
  check_illegal_addresses({"1777"});
}

TEST_CASE("an illegal address on one of two ranks ends the job without a stack trace") {
  if (!gpus_are_faked()) return;
  const Workspace place;
  auto options = on_gpus(place, 2, launched(place, 2, kSaves));
  options.set["FAKECUDA_FAULT_AT"] = "1900";
  options.set["FAKECUDA_FAULT_RANK"] = "1";
  const auto run = finish(options);
  INFO(run.out << run.err);
  CHECK(run.exit == 1);
  CHECK_THAT(run.err, Contains("rank 1: ") && Contains("an illegal memory access"));
  CHECK_THAT(run.err, !Contains("terminate called") && !Contains("frame #"));
}

TEST_CASE("a rank that never joins NCCL ends the job after timeout_s, with one line") {
  if (!gpus_are_faked()) return;
  const Workspace place;
  auto options =
      on_gpus(place, 2, launched(place, 2, joined(kSaves, {"distributed_config.timeout_s=3"})));
  options.set["FAKENCCL_NEVER_JOIN"] = "1";
  options.set["FAKECUDA_FAULT_RANK"] = "1";
  const auto run = finish(options);
  INFO(run.out << run.err);
  CHECK(run.exit == 1);
  CHECK_THAT(run.err, Contains("cannot join by NCCL") && Contains("timeout_s=3"));
}

// ddp-run's own detection of hangs is off: NCCL's error is what ends the job, at once.
TEST_CASE("a broken network ends the job with NCCL's own words") {
  if (!gpus_are_faked()) return;
  const Workspace place;
  auto options = on_gpus(
      place, 2, launched(place, 2, {"trainer_config.max_steps=100000"}, {"--hang-timeout=0"}));
  options.set["FAKENCCL_BROKEN_FILE"] = place / "broken";
  options.set["FAKECUDA_FAULT_RANK"] = "1";
  ChildProgram job(options);
  job.wait_for("Step 5 | Train", 1, kPatience);
  place.write("broken", "");
  CHECK(job.wait_exit(kPatience) == 1);
  INFO(job.out() << job.err());
  CHECK_THAT(job.err(), Contains("error: rank 1: NCCL failed: remote process exited or there was "
                                 "a network error (socketProgress: Connection closed by remote "
                                 "peer fake-node-2<40123>)") &&
                            Contains("NCCL_DEBUG=INFO"));
  CHECK_THAT(job.err(), !Contains("terminate called") && !Contains("frame #"));
}

TEST_CASE("a kernel that never ends on one of two ranks ends the job after timeout_s, by name") {
  if (!gpus_are_faked()) return;
  const Workspace place;
  auto options = on_gpus(
      place, 2,
      launched(place, 2, joined(kSaves, {"distributed_config.timeout_s=3"}), {"--hang-timeout=0"}));
  options.set["FAKECUDA_STUCK_AT"] = "2000";
  options.set["FAKECUDA_FAULT_RANK"] = "1";
  const auto run = finish(options);
  INFO(run.out << run.err);
  CHECK(run.exit == 1);
  CHECK_THAT(run.err, Contains("error: rank 1: a kernel on its GPU has not ended within "
                               "distributed_config.timeout_s=3"));
  CHECK_THAT(run.err, Contains("first failure: rank 1"));
}

namespace {

// Without torch's cache each tensor is a call of cudaMalloc: the model's, those of forward and
// backward passes, of the optimizer, of an evaluation, of a snapshot.
void check_full_gpu(int moments) {
  const Words words = {"trainer_config.max_steps=4", "trainer_config.eval_every_steps=2",
                       "trainer_config.save_every_steps=2"};
  const auto without_cache = [&](const Workspace& place, int fails_at) {
    auto options = on_gpus(place, 1, alone(place, words));
    options.set["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1";
    options.set["FAKECUDA_OOM_AT"] = std::to_string(fails_at);
    options.set["FAKECUDA_OOM_LASTS"] = "1";
    return options;
  };
  const Workspace enough;
  succeed(without_cache(enough, 0));
  const int calls = ledgers_of(enough).at(0).at("alloc_calls").get<int>();
  REQUIRE(calls > 1000);
  for (int moment = 0; moment < moments; ++moment) {
    const int call = 1 + moment * calls / moments;
    INFO("cudaMalloc " << call << " of " << calls);
    const Workspace place;
    const auto run = finish(without_cache(place, call));
    INFO(run.out << run.err);
    CHECK(run.exit == 76);
    CHECK(lines_of(run.err).size() == 1);
    CHECK_THAT(run.err, Contains("out of memory on the GPU"));
  }
}

}  // namespace

TEST_CASE("a GPU that is full in any phase ends a run with one line") {
  if (!gpus_are_faked()) return;
  check_full_gpu(3);
}

TEST_CASE("a GPU that is full at other moments ends a run with one line", "[long]") {
  if (!gpus_are_faked()) return;
  check_full_gpu(5);
}

// A driver that does not work: CUDA shows none of the devices whose files are there.
TEST_CASE("GPUs that CUDA does not show are an error of one line, not a run on the CPU") {
  if (!gpus_are_faked()) return;
  const auto without_driver = [](ChildOptions options) {
    const auto end = std::find(options.argv.begin(), options.argv.end(), "--");
    const Words broken = {"env", "FAKECUDA_DEVICES=0"};
    options.argv.insert(end + 1, broken.begin(), broken.end());
    return options;
  };
  const auto check_refused = [&](const ChildOptions& options) {
    const auto run = finish(without_driver(options));
    INFO(run.out << run.err);
    CHECK(run.exit == 2);
    CHECK(errors_of(run.err).size() == 1);
    CHECK_THAT(run.err, Contains("this machine has an NVIDIA GPU, but CUDA shows none") &&
                            Contains("trainer_config.device=cpu"));
    CHECK(order_of_steps(run.out).empty());
  };
  const Workspace by_hand, together, on_cpu;
  check_refused(on_gpus(by_hand, 1, alone(by_hand, kSaves)));
  check_refused(on_gpus(together, 2, launched(together, 2, kSaves)));
  const Words cpu = joined(kSaves, {"trainer_config.device=cpu"});
  succeed(without_driver(on_gpus(on_cpu, 2, launched(on_cpu, 2, cpu))));
}

TEST_CASE("an NCCL of another version than the header's is refused before it is used") {
  if (!gpus_are_faked()) return;
  const Workspace place;
  auto options = on_gpus(place, 2, launched(place, 2, kSaves));
  options.set["FAKENCCL_VERSION"] = "21809";
  const auto run = finish(options);
  INFO(run.out << run.err);
  CHECK(run.exit == 2);
  CHECK(errors_of(run.err).size() == 1);
  CHECK_THAT(run.err, Contains("compiled with the header of NCCL") &&
                          Contains("but NCCL 2.18 is loaded") && Contains("device=cpu"));
}

TEST_CASE("more ranks than GPUs are refused in one line") {
  if (!gpus_are_faked()) return;
  const Workspace place;
  auto options = on_gpus(place, 2, launched(place, 3, kSaves));
  const auto run = finish(options);
  INFO(run.out << run.err);
  CHECK(run.exit == 2);
  CHECK(errors_of(run.err).size() == 1);
  CHECK_THAT(run.err, Contains("3 local ranks, but this node shows 2 GPUs"));
}

}  // namespace ddp::test
