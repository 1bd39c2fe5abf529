#include "trainer/run/strategy/micro_batch_graphs.h"
#include "trainer/config/config.h"

#include "tests/support/catch.h"
#include "tests/trainer/llama_kinds.h"

namespace ddp::train {
namespace {

const torch::Device kGpu(torch::kCUDA, 0);

}  // namespace

TEST_CASE("one GPU has CUDA graphs unless a pass does more than launch kernels") {
  const Config plain;
  const auto why = [](const auto& change, int ranks = 1, bool keeps_statistics = false) {
    Config config;
    change(config);
    return why_no_cuda_graphs(config, kGpu, ranks, keeps_statistics);
  };
  const auto nothing = [](Config&) {};
  CHECK(why(nothing).empty());
  CHECK(why_no_cuda_graphs(plain, torch::kCPU, 1, false) == "the device is a CPU");
  CHECK(why(nothing, 2) == "2 ranks train together");
  CHECK(why(nothing, 1, true) == "batch norm keeps statistics of each batch");
  CHECK(why([](Config& config) {
          config.distributed.offload = Offload::kOptimizer;
        }).starts_with("distributed_config.offload"));
  CHECK(why([](Config& config) {
          config.distributed.gradient_compression = GradientCompression::kBf16;
        }).starts_with("distributed_config.gradient_compression"));
  CHECK(why([](Config& config) {
          config.gpt.activation_checkpointing = true;
        }).starts_with("activation_checkpointing"));
  CHECK(why([](Config& config) {
          LlamaConfig llama;
          llama.activation_checkpointing = true;
          config = test::whole_config(llama, /*block_size=*/8);
        }).starts_with("activation_checkpointing"));
}

TEST_CASE("without graphs batches are left alone, and a wish that fails is a warning") {
  MicroBatchGraphs off(AutoSwitch::kFalse, kGpu, "", 1);
  off.begin_step();
  CHECK_FALSE(off.takes(Batch{}));
  CHECK_FALSE(off.take_note());
  MicroBatchGraphs automatic(AutoSwitch::kAuto, kGpu, "2 ranks train together", 1);
  CHECK_FALSE(automatic.enabled());
  const auto note = automatic.take_note();
  REQUIRE(note);
  CHECK(note->text == "CUDA graphs: not used; 2 ranks train together");
  CHECK_FALSE(note->warns);
  CHECK_FALSE(automatic.take_note());
  CHECK(MicroBatchGraphs(AutoSwitch::kTrue, kGpu, "2 ranks train together", 1).take_note()->warns);
  CHECK_FALSE(
      MicroBatchGraphs(AutoSwitch::kAuto, torch::kCPU, "the device is a CPU", 1).take_note());
}

}  // namespace ddp::train
