// The table, the JSON and the YAML of `trainer plan`.
#include "trainer/app/plan/parallel_plan.h"

#include <nlohmann/json.hpp>

#include "tests/support/catch.h"
#include "trainer/config/config.h"

namespace ddp::train {
namespace {

using Catch::Contains;
using Json = nlohmann::ordered_json;

ParallelPlan plan(Strategy strategy, bool fits) {
  ParallelPlan plan;
  plan.config.distributed.strategy = strategy;
  plan.data = 4;
  plan.items = {{"weights", 1000}, {"gradients", 23}, {"activations", 400}};
  plan.memory_bytes = 1423;
  plan.largest_batch = fits ? 7 : 0;
  plan.time = {0.25, 0.0, 0.125, 0.125, 2000};
  plan.fits = fits;
  plan.reason = fits ? "computation takes 50% of a step" : "needs more";
  return plan;
}

PlanAnswer answer(bool fits) {
  PlanAnswer result;
  result.plans = {plan(Strategy::kDdp, false), plan(Strategy::kZero1, fits)};
  if (fits) {
    result.choice = result.plans[1];
    result.overrides = {"distributed_config.strategy=zero1"};
  }
  result.way_out = "Buy more.";
  return result;
}

std::string text_of(const PlanAnswer& answer) { return plan_text(answer, {"Ranks  4"}); }

std::vector<std::string> names_in(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(name);
  return names;
}

}  // namespace

TEST_CASE("the JSON of plans has the names that other programs rely on") {
  const auto json = Json::parse(plan_json(answer(true)));
  CHECK(names_in(json) == std::vector<std::string>{"plans", "choice"});
  const std::vector<std::string> names = {
      "strategy",          "tensor",          "pipeline", "expert",         "data",
      "memory_bytes",      "step_seconds",    "fits",     "reason",         "sequence_parallel",
      "pipeline_schedule", "pipeline_chunks", "accepted", "memory_by_kind", "sent_bytes",
      "seconds_by_kind"};
  REQUIRE(json["plans"].size() == 2);
  CHECK(names_in(json["plans"][0]) == names);
  CHECK(json["plans"][0]["strategy"] == "ddp");
  CHECK(json["plans"][0]["fits"] == false);
  CHECK(json["choice"]["strategy"] == "zero1");
  CHECK(json["choice"]["tensor"] == 1);
  CHECK(json["choice"]["pipeline"] == 1);
  CHECK(json["choice"]["data"] == 4);
  CHECK(json["choice"]["memory_bytes"] == 1423);
  CHECK(json["choice"]["step_seconds"] == 0.5);
  CHECK(json["choice"]["overrides"] == Json{"distributed_config.strategy=zero1"});
  CHECK(Json::parse(plan_json(answer(false)))["choice"].is_null());
}

TEST_CASE("the text has the facts, a row for each strategy and the choice as YAML") {
  CHECK(text_of(answer(true)) ==
        "Ranks  4\n"
        "\n"
        "strategy  data    memory      sent    step  batch up to  fits\n"
        "ddp          4    1.42kB    2.00kB   500ms            -  no: needs more\n"
        "zero1        4    1.42kB    2.00kB   500ms            7  yes: computation takes 50% of a "
        "step\n"
        "\n"
        "Choice: zero1 on 4 ranks, 500ms a step, 1.42kB on each.\n"
        "\n"
        "distributed_config:\n"
        "  strategy: zero1\n");
  CHECK_THAT(text_of(answer(false)), Catch::EndsWith("\nNothing fits.\nBuy more.\n"));
}

TEST_CASE("of equal divisions of the model the table has the best, and refused ones share a line") {
  PlanAnswer divided = answer(true);
  ParallelPlan slow = plan(Strategy::kDdp, true);
  slow.config.distributed.tensor = 2;
  ParallelPlan fast = slow;
  fast.config.distributed.sequence_parallel = true;
  fast.time.compute_s = 0.1;
  ParallelPlan refused = plan(Strategy::kDdp, false);
  refused.config.distributed.pipeline = 4;
  refused.accepted = false;
  refused.reason = "too few layers";
  ParallelPlan also_refused = refused;
  also_refused.config.distributed.tensor = 2;
  divided.plans.insert(divided.plans.end(), {slow, fast, refused, also_refused});
  divided.choice = fast;
  const std::string text = text_of(divided);
  CHECK_THAT(text, Contains("\nddp tensor=2+sp ") && !Contains("\nddp tensor=2 "));
  CHECK_THAT(text, Contains("\n\nNot possible: tensor=1 pipeline=4, tensor=2 pipeline=4: "
                            "too few layers\n\nChoice"));
}

// Nearly equal plans: the simpler one is chosen though another one is faster by its estimate.
TEST_CASE("the chosen plan is a row of the table, also where another of its division is faster") {
  PlanAnswer divided = answer(true);
  ParallelPlan simple = plan(Strategy::kDdp, true);
  simple.config.distributed.pipeline = 2;
  ParallelPlan fast = simple;
  fast.config.distributed.strategy = Strategy::kZero1;
  fast.config.distributed.pipeline_schedule = PipelineSchedule::kGpipe;
  fast.time.compute_s = 0.24;
  divided.choice = simple;
  for (const auto& plans : {std::vector{simple, fast}, std::vector{fast, simple}}) {
    divided.plans = plans;
    const std::string text = text_of(divided);
    CHECK_THAT(text, Contains("\nddp pipeline=2 1f1b ") && !Contains("zero1 pipeline=2"));
  }
  divided.choice.reset();
  CHECK_THAT(text_of(divided), Contains("\nzero1 pipeline=2 gpipe "));
}

}  // namespace ddp::train
