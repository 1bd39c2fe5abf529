// optimizer_config.state_bits=8: averages in 8 bits, under every strategy and through kills.
#include <filesystem>

#include <nlohmann/json.hpp>

#include "tests/support/catch.h"

#include "tests/e2e/logged_losses.h"
#include "tests/e2e/saved_state.h"
#include "tests/e2e/sharded_runs.h"

namespace ddp::test {
namespace {

Words steps_to(int step) { return {"trainer_config.max_steps=" + std::to_string(step)}; }

Words micro_batches_each(int count) {
  return {"trainer_config.grad_accumulation_steps=" + std::to_string(count)};
}

}  // namespace

TEST_CASE("8-bit averages lead to nearly the same losses, and to a smaller snapshot") {
  const Workspace eight, full;
  const Words run = {"trainer_config.max_steps=60", "trainer_config.log_every_steps=1"};
  const auto by_eight = succeed(alone(eight, kEightBits + run));
  const auto by_full = succeed(alone(full, kWideModel + run));
  check_near(logged_losses(by_eight.out), logged_losses(by_full.out), 0.02);
  CHECK(differences(eight.snapshot(), full.snapshot()) != Words{});
  // 4 bytes an element for the weights, and 8 or a little over 2 for the averages.
  const auto bytes = [](const Workspace& place) {
    return static_cast<double>(std::filesystem::file_size(place.snapshot()));
  };
  CHECK(bytes(eight) / bytes(full) == Approx(6.0 / 12.0).margin(0.03));
}

TEST_CASE("zero3 on 2 ranks keeps the 8-bit averages that one process keeps") {
  check_same({2, under("zero3") + micro_batches_each(2)}, {1, micro_batches_each(4)}, kEightBits);
}

TEST_CASE("zero1, zero2 and zero3 on 3 ranks keep the 8-bit averages that ddp keeps", "[long]") {
  check_all_same<Workspace>({{3, under("zero1")}, {3, under("zero3")}}, {3, {}},
                            kEightBits + Words{"trainer_config.eval_every_steps=2"});
  check_all_same<Workspace>(
      {{3, under("zero2") + micro_batches_each(2)}, {3, under("zero3") + micro_batches_each(2)}},
      {1, micro_batches_each(6)}, kEightBits);
}

TEST_CASE("a pipeline keeps the 8-bit averages that one process keeps", "[long]") {
  const Words options = kEightBits + micro_batches_each(2);
  check_same({2, stages(2), "Pipeline: "}, {1, {}},
             options + Words{"gpt_config.n_layer=4", "gpt_config.tie_weights=false"});
}

TEST_CASE("a snapshot with averages of other bits is refused in one line") {
  const Workspace place;
  succeed(alone(place, kEightBits + steps_to(2)));
  const auto run = finish(alone(place, kWideModel));
  CHECK(run.exit != 0);
  CHECK_THAT(run.err, Catch::Contains("optimizer_config.state_bits is 8 there, 32 in this "
                                      "configuration"));
}

}  // namespace ddp::test
