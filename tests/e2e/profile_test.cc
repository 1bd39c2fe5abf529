// profile: {start, steps}: a Chrome trace of each rank.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Json = nlohmann::json;

struct Range {
  double begin = 0;
  double end = 0;
  bool holds(const Range& other) const { return begin <= other.begin && other.end <= end; }
};

/// The complete events of that name, microseconds.
std::vector<Range> ranges(const Json& trace, const std::string& name) {
  std::vector<Range> found;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.value("ph", "") != "X" || event.value("name", "") != name) continue;
    const double begin = event.at("ts");
    found.push_back({begin, begin + event.at("dur").get<double>()});
  }
  return found;
}

int count_within(const Range& outer, const std::vector<Range>& inner) {
  int count = 0;
  for (const Range& range : inner) count += outer.holds(range) ? 1 : 0;
  return count;
}

Json trace_of(const Workspace& place, int rank) {
  return Json::parse(read_bytes(place / ("profile_rank_" + std::to_string(rank) + ".json")));
}

}  // namespace

TEST_CASE("a profile is a Chrome trace with the steps asked for, and changes no bit") {
  const Workspace plain, profiled;
  const Words options = {"trainer_config.max_steps=6", "trainer_config.grad_accumulation_steps=2"};
  succeed(launched(plain, 2, options));
  Words more = options;
  more.insert(more.end(), {"profile.start=3", "profile.steps=2"});
  const auto run = succeed(launched(profiled, 2, more));
  CHECK_THAT(run.out,
             Contains("Profile: " + profiled.path() + "/profile_rank_0.json, of steps 3 to 4"));
  CHECK_THAT(run.out, Contains("Communication, step 4: gradients in flight for ") &&
                          Contains(" ms exposed"));
  CHECK(differences(plain.snapshot(), profiled.snapshot()) == Words{});
  CHECK_THAT(run.err, !Contains("ERROR"));
  for (const int rank : {0, 1}) {
    const Json trace = trace_of(profiled, rank);
    for (const int step : {2, 5}) {
      CHECK(ranges(trace, "ProfilerStep#" + std::to_string(step)).empty());
    }
    for (const int step : {3, 4}) {
      INFO("rank " << rank << " step " << step);
      const auto whole = ranges(trace, "ProfilerStep#" + std::to_string(step));
      REQUIRE(whole.size() == 1);
      CHECK(count_within(whole.front(), ranges(trace, "forward")) == 2);
      CHECK(count_within(whole.front(), ranges(trace, "backward")) == 2);
      CHECK(count_within(whole.front(), ranges(trace, "optimizer")) == 1);
      CHECK(count_within(whole.front(), ranges(trace, "aten::mm")) > 4);
    }
  }
}

TEST_CASE("a run that ends within the steps to profile writes those that it made") {
  const Workspace place;
  const auto run =
      succeed(alone(place, {"trainer_config.max_steps=4", "profile.start=4", "profile.steps=9"}));
  CHECK_THAT(run.out, Contains("profile_rank_0.json, of step 4,"));
  CHECK(ranges(trace_of(place, 0), "ProfilerStep#4").size() == 1);
  const auto later =
      succeed(alone(place, {"trainer_config.max_steps=8", "profile.start=2", "profile.steps=2"}));
  CHECK_THAT(later.out, Contains("Profile: none: steps 2 to 3 were not trained"));
}

TEST_CASE("a trace that cannot be written does not end a training") {
  const Workspace place;
  std::filesystem::create_directories(place / "profile_rank_0.json/in_the_way");
  const auto run =
      succeed(alone(place, {"trainer_config.max_steps=3", "profile.start=2", "profile.steps=1"}));
  CHECK_THAT(run.out, Contains("Profile: not written to ") && Contains("Training finished"));
}

}  // namespace ddp::test
