// Texts that a run writes as it learns: where they go, and that training does not notice.
#include <nlohmann/json.hpp>

#include "tests/support/catch.h"

#include "tests/e2e/saved_state.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Json = nlohmann::json;

const Words kSampled = {"trainer_config.sample_every_steps=3", "trainer_config.sample_tokens=20",
                        "trainer_config.sample_prompt='the old oak'"};

/// Step and text of each line of samples.jsonl.
std::vector<std::pair<int, std::string>> samples_of(const Workspace& place) {
  std::vector<std::pair<int, std::string>> samples;
  for (const auto& line : lines_of(read_bytes(place / "samples.jsonl"))) {
    const Json sample = Json::parse(line);
    CHECK(sample.at("tag") == "sample");
    samples.emplace_back(sample.at("step"), sample.at("text"));
  }
  return samples;
}

}  // namespace

TEST_CASE("samples go to log, samples.jsonl and report, and training ends in the same bits") {
  const Words averaged = {"trainer_config.ema_decay=0.9", "trainer_config.max_steps=12"};
  const Workspace silent, sampled;
  succeed(launched(silent, 2, averaged));
  const auto run = succeed(launched(sampled, 2, joined(averaged, kSampled)));
  CHECK(differences(silent.snapshot(), sampled.snapshot()) == Words{});
  const auto samples = samples_of(sampled);
  REQUIRE(samples.size() == 4);
  for (int i = 0; i < 4; ++i) {
    const auto& [step, text] = samples[static_cast<std::size_t>(i)];
    CHECK(step == 3 * (i + 1));
    CHECK_THAT(text, Catch::StartsWith("the old oak"));
    CHECK(text.size() >= 31);
    CHECK_THAT(log_of(sampled), Contains(text));
  }
  CHECK_THAT(run.out, Contains("Step 12 | Sample:\nthe old oak"));
  succeed(trainer(sampled, {"report", ".", "--output", "page.html"}));
  CHECK_THAT(read_bytes(sampled / "page.html"),
             Contains(Json(samples.back().second.substr(0, 11)).dump().substr(0, 11)));
}

TEST_CASE("after a kill each sample is there once, and is that of the unbroken run") {
  const Workspace unbroken, killed;
  const Words options = joined(kSampled, {"trainer_config.max_steps=20"});
  succeed(launched(unbroken, 2, options));
  succeed(launched(
      killed, 2,
      joined(options, {R"(trainer_config.fault_plan=["rank=0 step=12 phase=sampling kind=kill"])"}),
      {"--max_restarts=1"}));
  // The snapshot before the kill is that of step 10.
  CHECK(samples_of(killed).size() == 6);
  CHECK(samples_of(killed) == samples_of(unbroken));
}

TEST_CASE("without a prompt a sample goes on from the beginning of the evaluation text") {
  const Workspace place;
  succeed(alone(place, {"trainer_config.sample_every_steps=2", "trainer_config.sample_tokens=5",
                        "trainer_config.max_steps=2"}));
  const std::string text = read_bytes(place / "text.txt");
  const auto samples = samples_of(place);
  REQUIRE(samples.size() == 1);
  // A tenth of the text's characters; some of them have two bytes.
  const auto at = text.find(samples.front().second.substr(0, 16));
  CHECK(at > text.size() / 10 * 8);
  CHECK(at != std::string::npos);
}

TEST_CASE("a prompt with other characters than the text's is refused before training") {
  const Workspace place;
  const auto run = finish(launched(
      place, 2, {"trainer_config.sample_every_steps=5", "trainer_config.sample_prompt='50 EUR'"}));
  CHECK(run.exit == 2);
  REQUIRE(errors_of(run.err).size() == 1);
  CHECK_THAT(errors_of(run.err).front(), Contains("trainer_config.sample_prompt: "));
}

}  // namespace ddp::test
