// Several ranks on one device, each held to its share of it.
#include <filesystem>

#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"

namespace ddp::test {
namespace {

using Catch::Contains;

constexpr int kDeviceFinal = 76;

const Words kTwoOnOne = {"distributed_config.ranks_per_device=2", "trainer_config.max_steps=10"};

Words limited(int mebibytes, Words more = {}) {
  more.insert(more.end(), kTwoOnOne.begin(), kTwoOnOne.end());
  more.push_back("distributed_config.memory_limit_mb=" + std::to_string(mebibytes));
  return more;
}

}  // namespace

TEST_CASE("ranks with a limit of memory that fits learn bit for bit what they learn without") {
  const Workspace free, held;
  succeed(launched(free, 2, {"trainer_config.max_steps=10"}));
  const auto run = succeed(launched(held, 2, limited(1024)));
  CHECK_THAT(run.out, Contains("Virtual devices: up to 2 ranks on the CPUs of a machine, ") &&
                          Contains("1024 MiB of memory for each"));
  CHECK(differences(free.snapshot(), held.snapshot()) == Words{});
}

TEST_CASE("a rank that wants more than its limit of memory ends the job for good") {
  const Workspace place;
  // Attention scores of 64 x 2 x 1000 x 1000 numbers: 512 MB in one piece.
  const Words batch = {"data_config.block_size=1000", "data_config.stride=1",
                       "trainer_config.batch_size=64"};
  const auto run = finish(launched(place, 2, limited(200, batch), {"--max_restarts=3"}));
  INFO(run.out << run.err);
  CHECK(run.exit == kDeviceFinal);
  CHECK(errors_of(run.err).size() == 1);
  CHECK_THAT(run.err, Contains("out of memory on the CPU with the limit of 200 MiB by "
                               "distributed_config.memory_limit_mb=200: 512.00MB more were "
                               "requested; a rank takes about "));
  CHECK_THAT(run.err, !Contains("; restart "));
  CHECK(order_of_steps(run.out).empty());
}

TEST_CASE("an evaluation is held to the limit of the run that saved the snapshot") {
  const Workspace place;
  succeed(launched(place, 2, limited(150)));
  const Words eval = {"eval", "--snapshot", "snapshot.pt"};
  succeed(trainer(place, eval));
  place.write("large.txt", "");
  std::filesystem::resize_file(place / "large.txt", 200'000'000);
  const auto run =
      finish(trainer(place, {"eval", "--snapshot", "snapshot.pt", "--data", "large.txt"}));
  INFO(run.out << run.err);
  CHECK(run.exit == kDeviceFinal);
  CHECK_THAT(run.err, Contains("out of memory in the evaluation with the limit of 150 MiB by "
                               "distributed_config.memory_limit_mb=150; lower --batch_size"));
}

TEST_CASE("a limit in which not even a thread starts is said as clearly") {
  const Workspace place;
  const auto run = finish(launched(place, 2, limited(1), {"--max_restarts=3"}));
  INFO(run.out << run.err);
  CHECK(run.exit == kDeviceFinal);
  CHECK_THAT(run.err, Contains("distributed_config.memory_limit_mb=1"));
  CHECK_THAT(run.err, !Contains("; restart "));
}

TEST_CASE("more ranks than a device is to have are refused") {
  const Workspace place;
  const auto run = finish(launched(place, 3, kTwoOnOne));
  CHECK(run.exit == 2);
  CHECK_THAT(run.err,
             Contains("distributed_config.ranks_per_device=2: 3 ranks share the CPUs of "));
}

TEST_CASE("doctor shows the share of a rank, and that the kernel keeps it") {
  const Workspace place;
  const auto run =
      succeed(trainer(place, {"doctor", "--ranks_per_device", "4", "--memory_limit_mb", "512"}));
  CHECK_THAT(run.out, Contains("Virtual devices\n") && Contains("up to 4 ranks on the CPUs") &&
                          Contains("512 MiB of memory for each") &&
                          Contains("the kernel (RLIMIT_DATA), tried"));
}

}  // namespace ddp::test
