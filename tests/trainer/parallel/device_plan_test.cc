// Ranks choose their devices on their own; what does not fit together is refused before NCCL
// waits.
#include "trainer/parallel/device/device_plan.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/trainer/parallel/probe_output.h"
#include "tests/trainer/user_error.h"

namespace ddp::train {
namespace {

using Catch::Contains;

RankDevice gpu_rank(const std::string& host, const std::string& gpu,
                    const std::string& backend = "nccl") {
  return {host, backend, gpu, ""};
}

std::string refusal(const std::vector<RankDevice>& ranks,
                    std::optional<int64_t> ranks_per_device = std::nullopt) {
  return ddp::test::user_error_of([&] { check_rank_devices(ranks, ranks_per_device); });
}

}  // namespace

TEST_CASE("ranks on a GPU each, and ranks on CPUs, fit together") {
  CHECK(refusal({}) == "");
  CHECK(refusal({gpu_rank("a", "GPU-1"), gpu_rank("a", "GPU-2"), gpu_rank("b", "GPU-3")}) == "");
  CHECK(refusal({gpu_rank("a", "", "gloo"), gpu_rank("b", "", "gloo")}) == "");
}

TEST_CASE("a node without a usable GPU among others is named, with the reason") {
  RankDevice lost = gpu_rank("b", "", "gloo");
  lost.why_cpu = "the driver is too old";
  const std::string text = refusal({gpu_rank("a", "GPU-1"), lost});
  CHECK_THAT(text, Contains("rank 0 (host a) computes on a GPU with nccl"));
  CHECK_THAT(text, Contains("rank 1 (host b) on the CPU with gloo, because the driver is too old"));
  CHECK_THAT(refusal({lost, gpu_rank("a", "GPU-1")}), Contains("because the driver is too old"));
}

TEST_CASE("ranks with different backends do not wait for each other") {
  CHECK_THAT(refusal({gpu_rank("a", "GPU-1"), gpu_rank("a", "GPU-2", "gloo")}),
             Contains("rank 1 (host a) on a GPU with gloo"));
}

TEST_CASE("two ranks on one GPU are refused with NCCL, and taken with Gloo") {
  CHECK_THAT(refusal({gpu_rank("a", "GPU-1"), gpu_rank("a", "GPU-2"), gpu_rank("a", "GPU-1")}),
             Contains("ranks 0 and 2 (host a) share the GPU GPU-1"));
  CHECK(refusal({gpu_rank("a", "GPU-1", "gloo"), gpu_rank("a", "GPU-1", "gloo")}) == "");
}

TEST_CASE("no more ranks share a device than ranks_per_device says") {
  const std::vector<RankDevice> on_gpus = {gpu_rank("a", "GPU-1", "gloo"),
                                           gpu_rank("a", "GPU-1", "gloo"),
                                           gpu_rank("a", "GPU-2", "gloo")};
  CHECK(refusal(on_gpus, 2) == "");
  CHECK_THAT(refusal(on_gpus, 1), Contains("distributed_config.ranks_per_device=1: 2 ranks share "
                                           "the GPU GPU-1 of host a; raise it"));
  const std::vector<RankDevice> on_cpus = {gpu_rank("a", "", "gloo"), gpu_rank("a", "", "gloo"),
                                           gpu_rank("b", "", "gloo")};
  CHECK(refusal(on_cpus, 2) == "");
  CHECK_THAT(refusal(on_cpus, 1), Contains("2 ranks share the CPUs of host a"));
}

TEST_CASE("what a rank tells of its device arrives as it was") {
  const RankDevice sent{"h\"\n\xff", "gloo", "GPU-1", "no driver"};
  const RankDevice received = RankDevice::from_json(sent.to_json());
  CHECK_THAT(received.host, Contains("h\"\n"));
  CHECK(received.backend == sent.backend);
  CHECK(received.gpu == sent.gpu);
  CHECK(received.why_cpu == sent.why_cpu);
}

TEST_CASE("texts of different lengths are gathered from all ranks") {
  CHECK(test::probe(3, "gather_texts") == "equal\n");
}

TEST_CASE("every rank refuses a group of unlike devices") {
  const std::string text = test::probe(2, "mix_devices");
  const auto first = text.find("refused: rank 0 (host ");
  REQUIRE(first != std::string::npos);
  CHECK(text.find("refused: rank 0 (host ", first + 1) != std::string::npos);
}

}  // namespace ddp::train
