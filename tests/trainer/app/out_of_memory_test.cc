// Errors of allocators, and what is said of them.
#include "trainer/app/out_of_memory.h"

#include <c10/util/Exception.h>
#include <torch/torch.h>

#include <new>

#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"

#include "trainer/config/config.h"
#include "trainer/task/causal_cost.h"

namespace ddp::train {
namespace {

Config some_model() {
  Config config;
  config.gpt.n_layer = 4;
  config.gpt.n_head = 4;
  config.gpt.n_embd = 128;
  config.trainer.batch_size = 64;
  return config;
}

std::string said_of(const std::exception& error) {
  const Config config = some_model();
  const CausalCost task(config, /*vocab_size=*/65);
  return out_of_memory_text(config, task, {/*cuda=*/false, /*world_size=*/2}, 0, error);
}

}  // namespace

TEST_CASE("what the allocators of CPU and GPU throw is known as lack of memory") {
  try {
    torch::empty({int64_t{1} << 58U}, torch::kUInt8);
    FAIL("256 PiB were allocated");
  } catch (const std::exception& error) {
    CHECK(is_out_of_memory(error));
    CHECK(memory_asked_for(error.what()) == "288230376.15GB");
  }
  try {
    TORCH_CHECK_WITH(OutOfMemoryError, false,
                     "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity "
                     "of 79.10 GiB of which 8.31 GiB is free.");
  } catch (const std::exception& error) {
    CHECK(is_out_of_memory(error));
    CHECK(memory_asked_for(error.what()) == "20.00 GiB");
  }
  CHECK(is_out_of_memory(std::bad_alloc()));
  CHECK_FALSE(is_out_of_memory(std::runtime_error("DefaultCPUAllocator: you tried to allocate")));
  try {
    torch::zeros({2}) + torch::zeros({3});
    FAIL("shapes do not fit");
  } catch (const std::exception& error) {
    CHECK_FALSE(is_out_of_memory(error));
  }
}

TEST_CASE("free memory is what the cgroup and those above it leave, of v1 and v2") {
  const test::TempFolder root;
  root.write("proc/meminfo", "MemTotal: 8 kB\nMemAvailable: 4 kB\n");
  CHECK(available_memory_bytes(root.path()) == 4096);
  root.write("proc/self/cgroup", "4:memory:/a/b\n0::/job/step\n");
  root.write("sys/fs/cgroup/job/step/memory.max", "max\n");
  root.write("sys/fs/cgroup/job/step/memory.current", "9\n");
  root.write("sys/fs/cgroup/job/memory.max", "3000\n");
  root.write("sys/fs/cgroup/job/memory.current", "1000\n");
  root.write("sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file 100\n");
  CHECK(available_memory_bytes(root.path()) == 2100);
  root.write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "700\n");
  root.write("sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "800\n");
  CHECK(available_memory_bytes(root.path()) == 0);
}

TEST_CASE("lack of memory is said in one line with what takes it and what takes less") {
  const std::string text = said_of(std::bad_alloc());
  CHECK_THAT(text, Catch::StartsWith("out of memory on the CPU; a rank takes about "));
  for (const char* part : {"weights ", "gradients ", "optimizer ", "activations ", "logits ",
                           "gpt_config.activation_checkpointing=true (",
                           "trainer_config.batch_size=32 with more grad_accumulation_steps ("}) {
    CHECK_THAT(text, Catch::Contains(part));
  }
  CHECK(text.find('\n') == std::string::npos);
}

}  // namespace ddp::train
