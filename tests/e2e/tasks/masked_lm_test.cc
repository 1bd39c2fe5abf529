// A masked language model from its vocabulary to its predictions: the same invariants as those of a
// causal one, and the mistakes specific to it.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/support/catch.h"

#include "tests/e2e/exact_runs.h"
#include "tests/e2e/masked_text.h"

namespace ddp::test {
namespace {

using Catch::Contains;
using Catch::StartsWith;

Words predicting(const Words& how) {
  Words words = {"predict", "--snapshot", "snapshot.pt"};
  words.insert(words.end(), how.begin(), how.end());
  return words;
}

void check_refused(const Finished& run, const Words& said) {
  INFO(run.err);
  CHECK(run.exit == 2);
  REQUIRE(lines_of(run.err).size() == 1);
  for (const auto& text : said) CHECK_THAT(run.err, Contains(text));
}

TEST_CASE("two ranks, one of them killed, learn to fill masks bit for bit as one process does") {
  check_exact<MaskedWorkspace>({}, 8);
}

TEST_CASE("the best masked language model is judged anew when its evaluation hides other tokens") {
  const MaskedWorkspace place;
  succeed(alone(place, {"trainer_config.max_steps=8"}));
  const std::string judged_anew = "the best model is judged anew";
  const auto same = succeed(alone(place, {"trainer_config.max_steps=9"}));
  CHECK_THAT(same.out, !Contains(judged_anew));
  const auto other =
      succeed(alone(place, {"trainer_config.max_steps=10", "data_config.mask_share=0.3"}));
  CHECK_THAT(other.out, Contains(judged_anew));
}

TEST_CASE(
    "a test set is evaluated when training has ended, and by trainer eval with equal digits") {
  const MaskedWorkspace place;
  place.write("test.txt", lines_of_text().substr(0, 700));
  const auto run = succeed(alone(place, {"data_config.test_path=test.txt"}));
  CHECK_THAT(run.out, Contains("Step 12 | Test Loss "));
  const auto records = read_bytes(place / "metrics.jsonl");
  const auto at = records.find(R"("split":"test")");
  REQUIRE(at != std::string::npos);
  const auto start = records.rfind('\n', at) + 1;
  const auto test = nlohmann::json::parse(records.substr(start, records.find('\n', at) - start));
  const auto again = succeed(
      trainer(place, {"eval", "--snapshot", "snapshot.pt", "--data", "test.txt", "--json"}));
  const auto evaluated = nlohmann::json::parse(again.out);
  CHECK(evaluated["masked_accuracy"] == test["masked_accuracy"]);
  CHECK(evaluated["masked_tokens"] == test["masked_tokens"]);
}

TEST_CASE("a layer of BERT that is frozen by its name stays as it was") {
  const MaskedWorkspace free, frozen;
  const auto run =
      succeed(alone(frozen, {R"(trainer_config.freeze=["cls.predictions.transform.*"])"}));
  succeed(alone(free));
  const auto changed = differences(free.snapshot(), frozen.snapshot());
  CHECK(std::find(changed.begin(), changed.end(), "model.cls.predictions.transform.dense.weight") !=
        changed.end());
  CHECK_THAT(run.out, Contains("Training finished") && Contains("1120  frozen"));
}

TEST_CASE("predict names the likeliest tokens of each mask with their probabilities") {
  const MaskedWorkspace place;
  succeed(alone(place, {"trainer_config.max_steps=2"}));
  const auto answer = succeed(trainer(place, {"predict", "--snapshot", "snapshot.pt", "--text",
                                              "The [MASK] ran [MASK].", "--json"}));
  const auto report = nlohmann::json::parse(answer.out);
  REQUIRE(report["predictions"].size() == 2);
  for (const auto& mask : report["predictions"]) {
    REQUIRE(mask["answers"].size() == 5);
    double before = 1.0;
    for (const auto& token : mask["answers"]) {
      CHECK(token["probability"].get<double>() > 0.0);
      CHECK(token["probability"].get<double>() <= before);
      before = token["probability"].get<double>();
    }
  }
  const auto table = succeed(
      trainer(place, {"predict", "--snapshot", "snapshot.pt", "--text", "The [MASK] ran."}));
  CHECK_THAT(table.out,
             Contains(report["predictions"][0]["answers"][0]["answer"].get<std::string>()));
  succeed(trainer(place, {"export", "--snapshot", "snapshot.pt", "--output", "exported"}));
  const auto of_folder =
      succeed(trainer(place, {"predict", "--snapshot", "exported", "--text", "The [MASK] ran."}));
  CHECK(of_folder.out == table.out);
}

TEST_CASE("texts with masks come from a file or from standard input as well") {
  const MaskedWorkspace place;
  succeed(alone(place, {"trainer_config.max_steps=2"}));
  place.write("masks.txt", "The [MASK] ran.\nThe brook ran.\n[MASK] ran [MASK].\r\n");
  const auto run = finish(
      trainer(place, predicting({"--input", "masks.txt", "--output", "masks.csv", "--top", "3"})));
  CHECK(run.exit == 1);
  CHECK_THAT(run.err, Contains("masks.txt: line 2: no prediction: has no [MASK]") &&
                          Contains("1 input could not be read"));
  const auto rows = lines_of(read_bytes(place / "masks.csv"));
  REQUIRE(rows.size() == 5);
  CHECK(rows[0] == "input,label,probability,error");
  CHECK_THAT(rows[1], StartsWith("masks.txt: line 1: mask 1,"));
  CHECK_THAT(rows[2], StartsWith("masks.txt: line 2,,,has no [MASK]"));
  CHECK_THAT(rows[4], StartsWith("masks.txt: line 3: mask 2,"));
  const auto alone_answer = nlohmann::json::parse(
      succeed(trainer(place, predicting({"--text", "The [MASK] ran.", "--json"}))).out);
  ChildOptions typed = trainer(place, {});
  typed.argv = {"/bin/sh", "-c",
                "echo 'The [MASK] ran.' | exec '" + trainer_program() +
                    "' predict --snapshot snapshot.pt --json"};
  const auto answer = nlohmann::json::parse(succeed(typed).out);
  CHECK(answer["input"] == "standard input: line 1: mask 1");
  CHECK(answer["answers"] == alone_answer["predictions"][0]["answers"]);
  check_refused(finish(trainer(place, predicting({"--input", "gone.txt"}))),
                {"--input: gone.txt: No such file or directory"});
  check_refused(finish(trainer(place, predicting({"--input", "."}))),
                {"--input: .: Is a directory"});
}

}  // namespace
}  // namespace ddp::test
