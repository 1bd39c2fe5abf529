// Whatever divides a run between ranks: what it saves is resumed under any other division, a killed
// rank costs nothing, and a division that cannot be is refused. Who holds what changes from step to
// step; one process knows what must come out.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/support/catch.h"

#include "tests/e2e/faults.h"
#include "tests/e2e/sharded_runs.h"

namespace ddp::test {
namespace {

/// Four layers of four heads, with dropout and averages.
const Words kDividedModel = {"gpt_config.n_layer=4",        "gpt_config.n_head=4",
                             "gpt_config.n_embd=64",        "trainer_config.save_every_steps=1",
                             "trainer_config.batch_size=4", "trainer_config.ema_decay=0.9"};
const Words kOwnHead = kDividedModel + Words{"gpt_config.tie_weights=false"};
const Words kTiedTable = kDividedModel + Words{"gpt_config.tie_weights=true"};

Words up_to(int count) { return {"trainer_config.max_steps=" + std::to_string(count)}; }
Words global_batch(int samples) {
  return {"trainer_config.global_batch_size=" + std::to_string(samples)};
}
Words in_shards(bool wanted) {
  return {std::string("trainer_config.snapshot_shards=") + (wanted ? "true" : "false")};
}

/// Each step is trained under the next way, from what the way before has saved. A step of two
/// micro-batches is the same sum wherever they are computed.
void check_each_step_elsewhere(const Words& model, const std::vector<Divided>& ways) {
  const Words options = model + global_batch(8) + Words{"trainer_config.eval_every_steps=1"};
  const Workspace unbroken, place;
  succeed(alone(unbroken, options + up_to(static_cast<int>(ways.size()))));
  int step = 0;
  for (const Divided& way : ways) {
    INFO("step " << step + 1 << ", " << way.ranks << " ranks, " << nlohmann::json(way.words));
    const auto run =
        succeed(launched(place, way.ranks, options + way.words + in_shards(true) + up_to(++step)));
    CHECK(order_of_steps(run.out) == std::vector<int>{step});
    CHECK(shards_of(place.snapshot()).size() ==
          static_cast<std::size_t>(way.ranks == 1 ? 0 : way.ranks));
  }
  CHECK(differences(place.snapshot(), unbroken.snapshot()) == Words{});
  CHECK(content_sha256(place) == content_sha256(unbroken));
}

/// A step without an update leaves the state as it was loaded: what one way has saved is loaded
/// under the next one, and saved as it was. All ways have copies that divide 24 samples.
void check_state_kept(const std::vector<Divided>& ways, bool shards) {
  const Words options = kTiedTable + global_batch(24) + in_shards(shards);
  const Workspace place;
  succeed(alone(place, options + up_to(2)));
  const std::string first = place / "first.pt";
  copy_snapshot(place.snapshot(), first);
  int step = 2;
  for (const Divided& way : ways) {
    INFO(way.ranks << " ranks, " << nlohmann::json(way.words).dump());
    Words faults;
    ++step;
    for (int rank = 0; rank < way.ranks; ++rank)
      faults.push_back(fmt::format("rank={} step={} kind=nan", rank, step));
    succeed(launched(place, way.ranks, options + way.words + up_to(step) + Words{plan_of(faults)}));
    CHECK(changed_tensors(place.snapshot(), first) == Words{});
  }
  CHECK(inspect(place, place.snapshot()).at("optimizer_step") == 2);
}

/// Attempt n dies in the n-th place; the run ends with the bits of an uninterrupted one.
void check_killed(const Divided& way, const Words& model) {
  const Words options = model + way.words + global_batch(16) + up_to(6) +
                        Words{"trainer_config.snapshot_every=2",
                              "trainer_config.save_every_steps=3", "trainer_config.ema_decay=0.9"};
  const std::string last = "rank=" + std::to_string(way.ranks - 1);
  const Workspace unbroken, killed;
  INFO(way.ranks << " ranks, " << nlohmann::json(options).dump());
  succeed(launched(unbroken, way.ranks, options));
  succeed(launched(killed, way.ranks,
                   options + Words{plan_of({last + " step=3 phase=forward kind=kill attempt=0",
                                            "rank=0 step=4 phase=backward kind=kill attempt=1",
                                            "rank=1 step=5 phase=optimizer kind=kill attempt=2",
                                            "rank=0 step=4 phase=writing kind=kill attempt=3"})},
                   kTwentyRestarts));
  check_same_end(unbroken, killed);
}

}  // namespace

TEST_CASE("a run that is divided otherwise in each step ends bit for bit as one process") {
  check_each_step_elsewhere(kOwnHead, {{2, under("zero1")},
                                       {2, stages(2)},
                                       {2, under("zero3")},
                                       {1, {}},
                                       {4, stages(2) + under("zero1")},
                                       {2, {}}});
}

TEST_CASE("a run that is divided in every other way in each step ends as one process", "[long]") {
  check_each_step_elsewhere(kOwnHead, {{1, {}},
                                       {2, stages(2, "interleaved")},
                                       {2, under("zero2")},
                                       {4, stages(4)},
                                       {2, stages(2, "gpipe")},
                                       {4, stages(2)},
                                       {2, {}},
                                       {2, under("zero3")},
                                       {4, stages(2) + under("zero1")}});
  check_each_step_elsewhere(kEightBits, {{2, under("zero1")}, {2, under("zero3")}, {2, {}}});
}

TEST_CASE("a state that is saved under one division is loaded under another, layers shared too") {
  check_state_kept({{3, under("zero3")}, {4, stages(2) + shared_by(2)}, {1, {}}}, true);
}

TEST_CASE("a state is kept under any division, in shards and in one file", "[long]") {
  for (const bool shards : {true, false})
    check_state_kept({{4, stages(2) + shared_by(2)},
                      {2, stages(2)},
                      {8, stages(2) + shared_by(2) + under("zero1")},
                      {4, stages(2) + under("zero1")},
                      {2, shared_by(2)},
                      {8, stages(2) + shared_by(2)},
                      {4, shared_by(2) + under("zero3")},
                      {4, shared_by(4)},
                      {2, shared_by(2, true)},
                      {4, shared_by(2, true)},
                      {3, under("zero3")},
                      {2, {}},
                      {3, under("zero2")},
                      {4, shared_by(2)},
                      {2, under("zero1")}},
                     shards);
}

TEST_CASE("a rank that is killed in any phase of a zero3 run with 8-bit averages costs nothing",
          "[long]") {
  check_killed({2, under("zero3")}, kEightBits);
}

TEST_CASE("a rank that is killed in any phase of any divided run leaves nothing behind", "[long]") {
  for (const char* name : {"zero1", "zero2", "zero3"}) check_killed({2, under(name)}, kWideModel);
  check_killed({2, stages(2)}, kTiedTable);
  check_killed({4, shared_by(2)}, kTiedTable);
  check_killed({4, stages(2) + shared_by(2)}, kTiedTable);
  check_killed({8, stages(2) + shared_by(2) + under("zero1")}, kTiedTable);
}

TEST_CASE("a division that cannot be is refused in one line that names one that can") {
  const std::vector<Divided> refusals = {
      {4, stages(4) + Words{"gpt_config.n_layer=3"},
       "distributed_config.pipeline=4: 4 stages need a layer each, and the model has 3 layers; "
       "use pipeline=3 or less"},
      {3, stages(2), "3 ranks are not a multiple of it"},
      {6, stages(2) + shared_by(2), "pipeline=2 x tensor=2 is 4 ranks for each copy of the model"},
      {2, stages(2, "interleaved") + Words{"trainer_config.grad_accumulation_steps=3"},
       "needs a multiple of pipeline=2 micro-batches for each copy of the model, and there are 3; "
       "set trainer_config.grad_accumulation_steps=4 or pipeline_schedule=1f1b"},
      {2,
       stages(2) + Words{"optimizer_config.param_groups=[{pattern: transformer.wte.*},"
                         "{pattern: '*', frozen: true}]"},  // the stage of rank 1
       "a stage has nothing to train; freeze less"},
      {3, shared_by(3),
       "distributed_config.tensor=3: gpt has 4 heads, which 3 ranks cannot share evenly; use a "
       "divisor of 4"},
      {3, shared_by(2), "3 ranks are not a multiple of it"},
      {2, shared_by(2, true) + Words{"data_config.block_size=31"},
       "make data_config.block_size a multiple of 2"}};
  for (const Divided& refusal : refusals) {
    INFO(refusal.says);
    const Workspace place;
    const auto run = finish(launched(place, refusal.ranks, kOwnHead + refusal.words));
    CHECK(run.exit != 0);
    REQUIRE_FALSE(errors_of(run.err).empty());
    CHECK_THAT(errors_of(run.err).front(), Catch::Contains(refusal.says));
  }
}

}  // namespace ddp::test
