// What Trainer promises of one step and of the state that it hands out.
#include "tests/trainer/task/unequal_task.h"

#include <utility>

#include "tests/support/catch.h"

#include "trainer/config/config.h"
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

TEST_CASE("a step that is abandoned between micro-batches changes nothing") {
  const Config config = test::unequal_config();  // of 6 micro-batches
  test::UnequalTask task, other_task;
  ProcessGroup alone;
  Mesh mesh(alone), other_mesh(alone);
  Trainer trainer(config, {}, mesh, task, std::nullopt, nullptr);
  Trainer unbroken(config, {}, other_mesh, other_task, std::nullopt, nullptr);
  RunMonitor monitor(config, alone.rank(), alone.size(), /*on_gpu=*/false);
  auto loader = trainer.make_loader();
  const auto other_loader = unbroken.make_loader();
  trainer.train_step(*loader, monitor, [] {});
  unbroken.train_step(*other_loader, monitor, [] {});

  int asked = 0;
  bool updates = false;
  const auto step = trainer.train_step(
      *loader, monitor, [&] { updates = true; }, [&] { return ++asked == 2; });
  CHECK(step.abandoned);
  CHECK(asked == 2);
  CHECK_FALSE(updates);
  CHECK(trainer.step() == 1);
  const auto check_same_state = [&] {
    const TrainingState state = trainer.capture();
    CHECK(state.tensors.size() == unbroken.capture().tensors.size());
    for (const auto& [name, tensor] : unbroken.capture().tensors) {
      INFO(name);
      CHECK(torch::equal(tensor_of(state, name), tensor));
    }
    CHECK(state.meta.cursor == unbroken.capture().meta.cursor);
  };
  check_same_state();

  loader = trainer.make_loader();
  CHECK_FALSE(trainer
                  .train_step(
                      *loader, monitor, [] {}, [] { return false; })
                  .abandoned);
  unbroken.train_step(*other_loader, monitor, [] {});
  check_same_state();
}

}  // namespace ddp::train
