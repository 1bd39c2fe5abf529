// What Trainer promises of one step and of the state that it hands out.
#include "tests/trainer/task/unequal_task.h"

#include <utility>

#include "tests/support/catch.h"

#include "trainer/runtime/seed.h"

namespace ddp::train {
namespace {

torch::Tensor tensor_of(const TrainingState& state, const std::string& name) {
  for (const auto& [own, tensor] : state.tensors) {
    if (own == name) return tensor.clone();
  }
  return {};
}

}  // namespace

TEST_CASE("capturing a state changes neither it nor the random numbers that follow") {
  const Config config = test::unequal_config();
  test::UnequalTask task;
  ProcessGroup alone;
  Mesh mesh(alone);
  Trainer trainer(config, {}, mesh, task, std::nullopt, nullptr);
  RunMonitor monitor(config, alone.rank(), alone.size(), /*on_gpu=*/false);
  const auto loader = trainer.make_loader();
  trainer.train_step(*loader, monitor, [] {});
  torch::manual_seed(11);
  const auto expected = torch::rand({8});
  torch::manual_seed(11);
  const TrainingState first = std::as_const(trainer).capture();
  CHECK(torch::equal(torch::rand({8}), expected));
  const TrainingState second = trainer.capture();
  CHECK(torch::equal(tensor_of(first, "model.weight"), tensor_of(second, "model.weight")));

  // The generator is the one of the next step's first micro-batch, whatever was drawn meanwhile.
  torch::manual_seed(dropout_seed(static_cast<uint64_t>(config.trainer.seed), trainer.step(), 0));
  const auto seeded = at::detail::getDefaultCPUGenerator().get_state();
  CHECK(torch::equal(tensor_of(first, "generator.cpu"), seeded));
  CHECK(torch::equal(tensor_of(second, "generator.cpu"), seeded));
}

}  // namespace ddp::train
