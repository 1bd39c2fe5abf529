// Which GPUs ranks get, on one machine and on two nodes, and what torch's allocator does with their
// memory.
#include "tests/support/catch.h"

#include "tests/e2e/logged_losses.h"
#include "tests/e2e/saved_state.h"
#include "tests/gpu/gpu_job.h"
#include "tests/support/loopback.h"

namespace ddp::test {
namespace {

using Catch::Contains;

const Words kSixSteps = {"trainer_config.max_steps=6", "trainer_config.save_every_steps=3"};

ChildOptions visible(ChildOptions options, const std::string& devices) {
  std::erase(options.unset, "CUDA_VISIBLE_DEVICES");
  options.set["CUDA_VISIBLE_DEVICES"] = devices;
  return options;
}

std::string uuid(const char* kind, int index) {
  return std::string(kind) + "-fafafafa-0000-0000-0000-00000000000" + std::to_string(index);
}

}  // namespace

TEST_CASE("ranks train on the GPUs that CUDA_VISIBLE_DEVICES names, by number or by UUID") {
  if (!gpus_are_faked()) return;
  const Workspace first_two;
  succeed(on_gpus(first_two, 2, launched(first_two, 2, kSixSteps)));
  for (const std::string& devices : {std::string("3,1"), uuid("GPU", 2) + "," + uuid("GPU", 0)}) {
    INFO(devices);
    const Workspace place;
    auto options = on_gpus(place, 4, launched(place, 4, kSixSteps));
    succeed(visible(options, devices));
    CHECK(ledgers_of(place).size() == 2);
    CHECK(differences(first_two.snapshot(), place.snapshot()) == Words{});
  }
}

// CUDA shows a process one instance: each rank gets its own by name.
TEST_CASE("ranks train on MIG instances, each of which sees its own") {
  if (!gpus_are_faked()) return;
  const Workspace whole, instances;
  succeed(on_gpus(whole, 2, launched(whole, 2, kSixSteps)));
  auto options =
      on_gpus(instances, 4, launched(instances, 4, kSixSteps, {"--one-device-per-rank"}));
  options.set["FAKECUDA_MIG"] = "1";
  succeed(visible(options, uuid("MIG", 1) + "," + uuid("MIG", 3)));
  CHECK(ledgers_of(instances).size() == 2);
  CHECK(differences(whole.snapshot(), instances.snapshot()) == Words{});
}

TEST_CASE("two ranks that CUDA shows one MIG instance are refused in one line") {
  if (!gpus_are_faked()) return;
  const Workspace place;
  auto options = on_gpus(place, 4, launched(place, 4, kSixSteps));
  options.set["FAKECUDA_MIG"] = "1";
  const auto run = finish(visible(options, uuid("MIG", 1) + "," + uuid("MIG", 3)));
  INFO(run.out << run.err);
  CHECK(run.exit == 2);
  CHECK(errors_of(run.err).size() == 1);
  CHECK_THAT(run.err, Contains("share the GPU"));
}

TEST_CASE("a job on the GPUs of two nodes ends as the same ranks on one") {
  if (!gpus_are_faked()) return;
  const Workspace one, two;
  succeed(on_gpus(one, 2, launched(one, 2, kSixSteps)));
  const int port = unused_port();
  const auto node = [&](int rank, const char* devices) {
    const Words nodes = {"--nnodes=2", "--node_rank=" + std::to_string(rank),
                         "--master_addr=127.0.0.1", "--master_port=" + std::to_string(port)};
    return visible(on_gpus(two, 2, launched(two, 1, kSixSteps, nodes)), devices);
  };
  ChildProgram first(node(0, "0"));
  const auto second = finish(node(1, "1"));
  first.wait_all_gone(kPatience);
  INFO(first.out() << first.err() << second.out << second.err);
  CHECK(first.wait_exit(kPatience) == 0);
  CHECK(second.exit == 0);
  CHECK(ledgers_of(two).size() == 2);
  CHECK(differences(one.snapshot(), two.snapshot()) == Words{});
}

TEST_CASE("eight GPUs train as eight ranks on CPUs", "[long]") {
  if (!gpus_are_faked()) return;
  const Words words = {"trainer_config.max_steps=3", "gpt_config.embd_pdrop=0",
                       "gpt_config.resid_pdrop=0", "gpt_config.attn_pdrop=0"};
  const Workspace gpus, cpus;
  const auto on_gpu = succeed(on_gpus(gpus, 8, launched(gpus, 8, words)));
  const auto on_cpu = succeed(launched(cpus, 8, words));
  CHECK(ledgers_of(gpus).size() == 8);
  const auto ours = logged_losses(on_gpu.out);
  const auto theirs = logged_losses(on_cpu.out);
  REQUIRE(ours.size() >= 3);
  REQUIRE(theirs.size() == ours.size());
  for (std::size_t i = 0; i < ours.size(); ++i) CHECK(ours[i] == Approx(theirs[i]).epsilon(1e-5));
}

// CUDA's memory in pieces mapped to one range of addresses.
TEST_CASE("expandable segments of torch's allocator change no number") {
  if (!gpus_are_faked()) return;
  const Workspace plain, expandable;
  succeed(on_gpus(plain, 1, alone(plain, kSixSteps)));
  auto options = on_gpus(expandable, 1, alone(expandable, kSixSteps));
  options.set["PYTORCH_ALLOC_CONF"] = "expandable_segments:True";
  succeed(options);
  CHECK(ledgers_of(expandable).at(0).at("counters").contains("cuMemCreate"));
  CHECK_FALSE(ledgers_of(plain).at(0).at("counters").contains("cuMemCreate"));
  CHECK(ledgers_of(expandable).at(0).at("missing").empty());
  CHECK(differences(plain.snapshot(), expandable.snapshot()) == Words{});
}

TEST_CASE("with expandable segments, too, a batch that no GPU holds ends a run with advice") {
  if (!gpus_are_faked()) return;
  const Workspace place;
  auto options = on_gpus(place, 1,
                         alone(place, {"data_config.block_size=64", "data_config.stride=1",
                                       "trainer_config.batch_size=4000"}));
  options.set["PYTORCH_ALLOC_CONF"] = "expandable_segments:True";
  options.set["FAKECUDA_MEMORY_GB"] = "0.6";
  const auto run = finish(options);
  INFO(run.out << run.err);
  CHECK(run.exit == 76);
  REQUIRE(lines_of(run.err).size() == 1);
  CHECK_THAT(run.err,
             Contains("out of memory on the GPU") && Contains("trainer_config.batch_size"));
}

TEST_CASE("a limit of memory holds on a GPU, and a run that fits into it is not changed") {
  if (!gpus_are_faked()) return;
  const Workspace plain, limited, small;
  succeed(on_gpus(plain, 1, alone(plain, kSixSteps)));
  const auto with_limit = [&](const Workspace& place, const char* mib) {
    return finish(on_gpus(
        place, 1,
        alone(place,
              joined(kSixSteps, {std::string("distributed_config.memory_limit_mb=") + mib}))));
  };
  const auto run = with_limit(limited, "2000");
  INFO(run.out << run.err);
  CHECK(run.exit == 0);
  CHECK(differences(plain.snapshot(), limited.snapshot()) == Words{});
  const auto too_small = with_limit(small, "1");
  INFO(too_small.out << too_small.err);
  CHECK(too_small.exit == 76);
  CHECK_THAT(too_small.err, Contains("memory_limit_mb=1"));
}

}  // namespace ddp::test
