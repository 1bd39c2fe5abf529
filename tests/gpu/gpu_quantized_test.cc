// Adapters on a base in 4 or 8 bits on a GPU: by trainer's own kernels the numbers of a CPU.
#include "tests/support/catch.h"

#include "tests/e2e/logged_losses.h"
#include "tests/gpu/gpu_job.h"

namespace ddp::test {
namespace {

using Catch::Contains;

struct QuantizedPlace : Workspace {
  explicit QuantizedPlace(const std::string& format) {
    write("config.yaml",
          tiny_text_config("model: llama\nllama_config: {init_from: base.pt}\n", "0.01") +
              "lora: {rank: 4, dropout: 0.0}\nquantize: {base: " + format + "}\n");
    succeed(alone(*this, {"~lora", "~quantize", "trainer_config.snapshot_path=base.pt",
                          "trainer_config.max_steps=2", "llama_config.init_from=null",
                          "llama_config.n_layer=2", "llama_config.n_head=2",
                          "llama_config.n_embd=64", "llama_config.intermediate=128"}));
  }
};

nlohmann::json kernels_of_last(const Workspace& place) {
  return ledgers_of(place).back().at("kernels");
}

std::string greedy(const Workspace& place, const std::string& device) {
  const Words words = {"generate", "--snapshot",       "snapshot.pt", "--prompt",          "the ",
                       "--greedy", "--max_new_tokens", "20",          "--device=" + device};
  const auto options = trainer(place, words);
  return succeed(device == "cuda" ? on_gpus(place, 1, options) : options).out;
}

}  // namespace

TEST_CASE("on a GPU a base in 4 or 8 bits is read by kernels, with the losses and text of a CPU") {
  if (!gpus_are_faked()) return;
  for (const std::string format : {"nf4", "int8"}) {
    INFO(format);
    const QuantizedPlace gpu(format), cpu(format);
    const auto by_gpu = succeed(on_gpus(gpu, 1, alone(gpu, {})));
    const auto by_cpu = succeed(alone(cpu, {}));
    check_near(logged_losses(by_gpu.out), logged_losses(by_cpu.out), 1e-5);
    CHECK(kernels_of_last(gpu).contains("ddp_dequantize"));
    CHECK(greedy(gpu, "cuda") == greedy(gpu, "cpu"));
    CHECK(kernels_of_last(gpu).contains("ddp_coded_product"));
  }
}

namespace {

void check_graphs_in(const std::string& type) {
  const Words plain = {"trainer_config.fused_gpu_kernels=false"};
  const Words words = {"trainer_config.use_amp=true", "trainer_config.amp_dtype=" + type};
  const QuantizedPlace ours("nf4"), torchs("nf4");
  const auto by_ours = succeed(on_gpus(ours, 1, alone(ours, words)));
  const auto by_torchs = succeed(on_gpus(torchs, 1, alone(torchs, joined(words, plain))));
  check_near(logged_losses(by_ours.out), logged_losses(by_torchs.out), 2e-2);
  CHECK_THAT(by_ours.out, Contains("launches of a micro-batch are replayed as one"));
  CHECK(kernels_of_last(ours).contains("ddp_dequantize"));
  CHECK_FALSE(kernels_of_last(torchs).contains("ddp_dequantize"));
  greedy(torchs, "cuda");
  CHECK_FALSE(kernels_of_last(torchs).contains("ddp_coded_product"));
}

}  // namespace

TEST_CASE("with a base in 4 bits graphs and bfloat16 train as torch's operations do") {
  if (!gpus_are_faked()) return;
  check_graphs_in("bfloat16");
}

TEST_CASE("with a base in 4 bits graphs and float16 train as torch's operations do", "[long]") {
  if (!gpus_are_faked()) return;
  check_graphs_in("float16");
}

}  // namespace ddp::test
